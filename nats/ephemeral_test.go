package nats_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
)

func ephemeralMember() backend.Config {
	c := member()
	c.Ephemeral = true
	return c
}

// consumers returns the consumers of a stream, by name.
func (p *fixture) consumers(t *testing.T, stream string) map[string]*jetstream.ConsumerInfo {
	t.Helper()
	s, err := p.js.Stream(t.Context(), stream)
	require.NoError(t, err)
	all := map[string]*jetstream.ConsumerInfo{}
	list := s.ListConsumers(t.Context())
	for c := range list.Info() {
		all[c.Name] = c
	}
	require.NoError(t, list.Err())
	return all
}

// An ephemeral group leaves nothing in the broker.
func TestEphemeralLeavesNothing(t *testing.T) {
	ownAndShared(t, func(t *testing.T, o nats.Options, stream string) {
		p := newFixture(t, o)
		for range 2 {
			src, err := p.b.Attach(t.Context(), ephemeralMember())
			require.NoError(t, err)
			require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}, {Topic: "orders"}}))
			ds, err := src.Receive(t.Context(), 1, 0)
			require.NoError(t, err)
			require.Len(t, ds, 1, "one stays held")
			require.NoError(t, p.b.Pause(t.Context(), "orders", "g", backend.Pause{}))
			require.NoError(t, p.b.ResetGroup(t.Context(), "orders", "g", backend.StartLatest))
			require.NoError(t, src.Close())
			require.Empty(t, p.consumers(t, stream))
		}
	})
}

// A group of two processes stays until both have closed, whichever closes first, even if
// one has overwritten the mark of the other.
func TestEphemeralOfTwoProcesses(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	other, err := nats.New(p.conn, nats.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	one, err := p.b.Attach(t.Context(), ephemeralMember())
	require.NoError(t, err)
	longer := ephemeralMember()
	longer.Lease = time.Minute
	two, err := other.Attach(t.Context(), longer)
	require.NoError(t, err)
	g := p.consumers(t, ordersStream)["g"].Config
	require.Equal(t, 10*time.Minute, g.InactiveThreshold)
	marks := slices.DeleteFunc(slices.Collect(maps.Keys(g.Metadata)), func(key string) bool { return key[0] == '_' })
	require.Len(t, marks, 2)

	g.Metadata = map[string]string{}
	s, err := p.js.Stream(t.Context(), ordersStream)
	require.NoError(t, err)
	_, err = s.UpdateConsumer(t.Context(), g)
	require.NoError(t, err)
	for _, b := range []*nats.Backend{p.b, other} {
		next, err := b.Maintain(t.Context(), "orders", "g")
		require.NoError(t, err)
		require.LessOrEqual(t, next, 5*time.Second)
	}
	require.NoError(t, one.Close())
	require.Contains(t, p.consumers(t, ordersStream), "g")
	require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	ds, err := two.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.NoError(t, other.Close())
	require.Empty(t, p.consumers(t, ordersStream))
}

// A member that closes does not touch a group that another process has created again.
func TestEphemeralMadeAnew(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	old, err := p.b.Attach(t.Context(), ephemeralMember())
	require.NoError(t, err)
	require.NoError(t, p.b.DeleteGroup(t.Context(), "orders", "g"))
	anew, err := p.b.Attach(t.Context(), ephemeralMember())
	require.NoError(t, err)
	require.NoError(t, old.Close())
	require.Contains(t, p.consumers(t, ordersStream), "g")
	require.NoError(t, anew.Close())
	require.Empty(t, p.consumers(t, ordersStream))
}

// Maintain's heartbeat extends no lease, and keeps a paused group alive.
func TestSignOfLife(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
	c := ephemeralMember()
	c.Lease = 200 * time.Millisecond
	src, err := p.b.Attach(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	ds, err := src.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.NoError(t, p.b.Pause(t.Context(), "orders", "g", backend.Pause{}))
	for start := time.Now(); time.Since(start) < 15*c.Lease; { // the server deletes a silent group after ten
		next, err := p.b.Maintain(t.Context(), "orders", "g")
		require.NoError(t, err)
		require.LessOrEqual(t, next, 3*c.Lease)
		require.GreaterOrEqual(t, next, 100*time.Millisecond)
		time.Sleep(next)
	}
	require.NoError(t, p.b.Resume(t.Context(), "orders", "g"))
	require.Eventually(t, func() bool {
		ds, err := src.Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		return len(ds) == 1 && ds[0].Attempt == 2
	}, 3*time.Second, time.Millisecond)
	require.NoError(t, src.Close())
}

// A member without permission to delete its group says that the server does so later.
func TestEphemeralWithoutPermission(t *testing.T) {
	t.Parallel()
	server := prepared(t, permissions(t))
	consumer, err := as(t, server, "consumer")
	require.NoError(t, err)
	var notices []string
	c := ephemeralMember()
	c.Topic, c.Lease = topic, 100*time.Millisecond
	c.Notify = func(n backend.Notice) { notices = append(notices, n.Text) }
	src, err := consumer.Attach(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, src.Close())
	require.Len(t, notices, 1)
	require.Contains(t, notices[0], "the group could not be deleted")
	owner, err := as(t, server, "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		groups, err := owner.Groups(t.Context(), topic)
		require.NoError(t, err)
		return len(groups) == 1
	}, 20*time.Second, 100*time.Millisecond, "the server does not delete the group")
}
