package nats

import (
	"math/rand/v2"
	"net/url"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
)

// The server puts a redelivered message that does not fit behind the others. The messages of a
// pull with a bound must therefore fit, unless one is larger than all that the member has seen
// for long. A
// redelivery is a few bytes larger than the delivery before, because its reply subject has
// larger numbers.
func TestRedeliveredMessagesFitIntoTheirPull(t *testing.T) {
	const longer = 6
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		largest := 200 + random.IntN(200<<10)
		var p puller
		p.batch = maxBatch
		p.observeSizes([]*natsgo.Msg{{Data: make([]byte, largest-longer)}})
		for range 40 {
			p.observeSizes([]*natsgo.Msg{{Data: make([]byte, 1+random.IntN(largest/2))}})
			left := int64(p.largest + random.IntN(20*largest)) // with less, no pull is sent
			req := p.request(20, left, false)
			require.LessOrEqual(t, req.Batch*largest, req.MaxBytes, "%d messages of %d bytes in a pull of %d (seed %d)", req.Batch, largest, req.MaxBytes, seed)
		}
	}
}

// A pull asks for a few megabytes of messages at most, by their recent size, and for more
// messages again once they get smaller.
func TestPullsAreBounded(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
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

// A pull is not given up while its messages arrive, even if the connection is slow.
func TestPullOverASlowLine(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	const n = 6
	for range n {
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
	time.Sleep(time.Second)                  // a consumer that is younger may count as recreated; see source.diagnose
	line.Throttle(300 << 10)                 // bytes in a second, so the pull of five takes longer than a pull that has not ended in time
	for got := 0; got < n; {
		ds, err := member.Receive(t.Context(), n-got, 0)
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
	s := newFixture(t)
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
