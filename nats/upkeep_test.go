package nats

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// peer opens another backend on the server of s.
func (s *stage) peer() *stage {
	u, err := url.Parse(s.server.URL())
	require.NoError(s, err)
	b, err := Open(s.Context(), u)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, b.Close()) })
	return &stage{s.T, b, s.server, nil}
}

// maintain calls Maintain and returns the number of requests that it took.
func (s *stage) maintain(group string) int {
	before := s.messages()
	_, err := s.Maintain(s.Context(), "orders", group)
	require.NoError(s, err)
	return int(s.messages() - before)
}

func (s *stage) depth() int {
	stats, err := s.Stats(s.Context(), "orders", "billing")
	require.NoError(s, err)
	return int(stats.Depth)
}

func (s *stage) settleAll(n int) {
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
	s := newStage(t)
	lists, err := s.conn.SubscribeSync("$JS.API.CONSUMER.NAMES.>")
	require.NoError(t, err)
	others := []*stage{s.peer(), s.peer()}
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

// Groups of one process look at a topic by few requests, although one group is behind and
// prevents a purge.
func TestSlowGroupIsRemembered(t *testing.T) {
	t.Parallel()
	s := newStage(t)
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
	s := newStage(t)
	_, err := s.Declare(t.Context(), "orders", backend.Declaration{Settings: backend.TopicSettings{Keep: time.Hour}})
	require.NoError(t, err)
	s.publish(20)
	s.settleAll(20)
	for range 3 {
		require.Equal(t, 2, s.maintain("billing"), "the group, the stream")
	}
	require.Equal(t, 20, s.depth())
}

// Publish to a topic with bounds makes few requests for room, also while it is full of settled
// messages.
func TestLooksForRoomAreRare(t *testing.T) {
	t.Parallel()
	s := newStage(t)
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
