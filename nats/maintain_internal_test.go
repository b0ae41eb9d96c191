package nats

import (
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
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

// Maintain asks to be called before the stream is full at its recent growth, and purges a
// crowded stream even while messages are held.
func TestMaintainFollowsGrowth(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
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

// peer opens another backend on the server of s.
func (s *fixture) peer() *fixture {
	u, err := url.Parse(s.server.URL())
	require.NoError(s, err)
	b, err := Open(s.Context(), u)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, b.Close()) })
	return &fixture{s.T, b, s.server, nil}
}

// maintain calls Maintain and returns the number of requests that it took.
func (s *fixture) maintain(group string) int {
	before := s.messages()
	_, err := s.Maintain(s.Context(), "orders", group)
	require.NoError(s, err)
	return int(s.messages() - before)
}

func (s *fixture) depth() int {
	stats, err := s.Stats(s.Context(), "orders", "billing")
	require.NoError(s, err)
	return int(stats.Depth)
}

func (s *fixture) settleAll(n int) {
	for n > 0 {
		ds, err := s.member.Receive(s.Context(), n, 0)
		require.NoError(s, err)
		require.NoError(s, s.member.Ack(s.Context(), backend.Lend(ds)))
		n -= len(ds)
	}
}

// One process purges a busy topic, and only it asks for all groups. Another one takes over
// when this process ends.
func TestOneProcessPurges(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	lists, err := s.conn.SubscribeSync("$JS.API.CONSUMER.NAMES.>")
	require.NoError(t, err)
	others := []*fixture{s.peer(), s.peer()}
	const rounds = 10
	for range rounds {
		s.publish(20)
		s.settleAll(20)
		s.publish(1) // is not settled, so the stream is not empty
		s.maintain("billing")
		for _, o := range others {
			o.maintain("billing")
		}
		require.Equal(t, 1, s.depth())
		s.settleAll(1)
	}
	require.NoError(t, s.conn.Flush())
	n, _, err := lists.Pending()
	require.NoError(t, err)
	require.LessOrEqual(t, n, rounds+len(others))

	s.publish(20)
	s.settleAll(20)
	for range 2 {
		for _, o := range others {
			o.maintain("billing")
		}
	}
	require.Zero(t, s.depth(), "nobody has taken over")
}

// Groups of one process check a topic with few requests, although one group is behind and
// prevents a purge.
func TestSlowGroupIsRemembered(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	slow, err := s.Attach(s.Context(), backend.Config{Topic: "orders", Group: "slow", Lease: time.Minute})
	require.NoError(t, err)
	s.publish(20)
	s.settleAll(20)
	s.maintain("billing")
	require.Equal(t, 3, s.maintain("billing"), "the group, the stream, the slow group")
	require.Equal(t, 2, s.maintain("slow"))
	require.Equal(t, 20, s.depth())
	s.member = slow.(*source)
	s.settleAll(20)
	s.maintain("billing")
	require.Zero(t, s.depth())
}

// While no message is much older than Keep, Maintain makes no more requests than without
// Keep.
func TestKeepIsCheap(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	_, err := s.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}})
	require.NoError(t, err)
	s.publish(20)
	s.settleAll(20)
	for range 3 {
		require.Equal(t, 2, s.maintain("billing"), "the group, the stream")
	}
	require.Equal(t, 20, s.depth())
}

// Publish to a topic with bounds makes few requests for room, even while it is full of
// settled messages.
func TestLooksForRoomAreRare(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	const most = 10_000
	_, err := s.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour, MaxMessages: most}})
	require.NoError(t, err)
	for range most / 500 {
		s.publish(500)
		s.settleAll(500)
	}
	before := s.messages()
	for range most / 20 {
		s.publish(10)
	}
	extra := int(s.messages()-before) - most/2
	t.Logf("%d requests besides %d messages in %d calls", extra, most/2, most/20)
	require.LessOrEqual(t, extra, 60)
	require.Positive(t, extra)
	require.LessOrEqual(t, s.depth(), most)
	require.Greater(t, s.depth(), most*13/16)
}
