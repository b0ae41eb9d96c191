package nats

import (
	"net/url"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
)

// Maintain runs again before a stream is full, although the stream grows by 30 MiB a second
// and messages are always held. That holds for all message sizes.
func TestLooksFollowGrowth(t *testing.T) {
	t.Parallel()
	const most, speed, begins = 256 << 20, 30 << 20, 97 << 20 // the second look finds slightly less than half
	for _, size := range []int{256, 16 << 10, 1 << 20} {
		var before fullness
		began := time.Now()
		at, first, last := began, 0, begins/size // message numbers in the stream
		for next := time.Duration(0); at.Sub(began) < time.Minute; {
			last += int(next.Seconds() * speed / float64(size))
			require.LessOrEqual(t, (last-first)*size, most, "full after %v", at.Sub(began))
			now := newFullness(jetstream.StreamInfo{
				Config: jetstream.StreamConfig{MaxBytes: most},
				State:  jetstream.StreamState{LastSeq: uint64(last), Msgs: uint64(last - first), Bytes: uint64((last - first) * size)},
			}, at)
			if now.share > crowded {
				first = last - 1 // purged, except the held message
			}
			next = now.next(before)
			before, at = now, at.Add(next)
		}
	}
}

// Maintain runs seldom for a stream that does not grow.
func TestLooksAreRareWithoutGrowth(t *testing.T) {
	t.Parallel()
	now := fullness{at: time.Now(), last: 10, msgs: 10, share: 0.1}
	later := now
	later.at = now.at.Add(time.Second)
	require.Equal(t, idleInterval, later.next(now))
	later.share = 0.9
	require.Equal(t, busyInterval, later.next(now), "it may be full")
}

// Maintain asks to be called before the stream is full at its recent speed, and purges a
// crowded stream even while messages are held.
func TestMaintainFollowsGrowth(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.options.MaxBytes = 8 << 20
	member, err := s.Attach(t.Context(), backend.Config{Topic: "small", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	maintain := func() time.Duration {
		next, err := s.Maintain(t.Context(), "small", "billing")
		require.NoError(t, err)
		return next
	}
	began := time.Now()
	maintain()
	stored, held := 0, []backend.Delivery{}
	for range 32 { // four times the stream's room
		for range 16 {
			m := &backend.Message{Topic: "small", Payload: make([]byte, 64<<10)}
			require.NoError(t, s.Publish(t.Context(), []*backend.Message{m}))
		}
		for n := 0; n < 16; {
			ds, err := member.Receive(t.Context(), 16-n, 0)
			require.NoError(t, err)
			n += len(ds)
			held = append(held, ds...)
		}
		last := len(held) - 1
		require.NoError(t, member.Ack(t.Context(), backend.Lend(held[:last])))
		held = held[last:]
		stored += 16 * 64 << 10
		next := maintain()
		require.LessOrEqual(t, next, max(time.Since(began)*time.Duration(s.options.MaxBytes)/(16*64<<10), minInterval))
		began = time.Now()
	}
	require.Greater(t, stored, 3*int(s.options.MaxBytes))
}

// A pull asks for a few megabytes of messages at most, by their recent size, and for more
// messages again once they get smaller.
func TestPullsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	publish := func(n, size int) {
		for range n {
			require.NoError(t, s.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: make([]byte, size)}}))
		}
	}
	publish(30, 900<<10)
	most := func() (size int) {
		ds, err := s.member.Receive(t.Context(), 1000, 0)
		require.NoError(t, err)
		for i := range ds {
			size += ds[i].Size()
		}
		require.NoError(t, s.member.Ack(t.Context(), backend.Lend(ds)))
		return size
	}
	s.member.puller.size = 900 << 10 // as if a message of this size had been received
	for got := 0; got < 30*900<<10; {
		size := most()
		require.LessOrEqual(t, size, maxPullBytes)
		got += size
	}
	for range 12 {
		publish(1, 100)
		most()
	}
	require.Equal(t, maxBatch, s.member.puller.request(10*maxBatch, 0, true).Batch)
}

// A pull is not given up while its messages arrive, although the line is slow.
func TestPullOverASlowLine(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for range 10 {
		require.NoError(t, s.Publish(t.Context(), []*backend.Message{{Topic: "orders", Payload: make([]byte, 200<<10)}}))
	}
	line := faultproxy.New(t, s.server.Addr())
	u, err := url.Parse("nats://" + line.Addr())
	require.NoError(t, err)
	slow, err := Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, slow.Close()) })
	member, err := slow.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	member.(*source).puller.size = 200 << 10 // as if a message of this size had been received
	time.Sleep(time.Second)                  // a consumer that is younger may count as made anew, see source.fate
	line.Throttle(300 << 10)                 // bytes in a second, so all take seven seconds
	for got := 0; got < 10; {
		ds, err := member.Receive(t.Context(), 10-got, 0)
		require.NoError(t, err)
		for i := range ds {
			require.Equal(t, 1, ds[i].Attempt)
		}
		got += len(ds)
	}
}

// A delivery that is held for long keeps the memory of a few others alive, not of its whole
// read.
func TestHeldDeliveryKeepsFewOthers(t *testing.T) {
	s := newStage(t)
	const most = 1000
	for range 2 {
		s.publish(most / 2)
	}
	s.member.puller.size = 1000 // as if messages of this size had been received
	ds, err := s.member.Receive(t.Context(), most, 0)
	require.NoError(t, err)
	require.Len(t, ds, most)
	held := ds[most/2]
	var receipts []weak.Pointer[token]
	var headers []weak.Pointer[byte]
	for i := range ds {
		receipts = append(receipts, weak.Make(ds[i].Token.(*token)))
		headers = append(headers, weak.Make(unsafe.StringData(ds[i].Headers[0].Value)))
	}
	clear(ds)
	runtime.GC()
	kept := 0
	for i := range receipts {
		if receipts[i].Value() != nil || headers[i].Value() != nil {
			kept++
		}
	}
	require.LessOrEqual(t, kept, deliveriesPerSlab)
	runtime.KeepAlive(held)
}
