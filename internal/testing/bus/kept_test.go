package bus_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A new group begins with the oldest event that the topic keeps. With Keep it gets all ten events that
// another group has settled. Without Keep the broker may forget an event as soon as every group has
// settled it, so the new group gets none of them from a broker that does so at once.
//
// A young topic of Redis is trimmed after a minute only: after a loss of data its groups are created
// one after another, and each must get all events. So a new group gets between none and all of
// the ten. An application must not rely on either number.
func TestANewGroupGetsKeptEvents(t *testing.T) {
	for _, broker := range []struct {
		name    string
		url     func(t *testing.T) string
		forgets bool // settled events, at the first Maintain
	}{
		{"memory", func(*testing.T) string { return "mem:" }, true},
		{"bolt", func(t *testing.T) string { return "bolt:" + filepath.ToSlash(filepath.Join(t.TempDir(), "events.db")) }, true},
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }, false},
		{"nats", func(t *testing.T) string { return natstest.Start(t).URL() }, true},
	} {
		t.Run(broker.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			url, o := broker.url(t), eventbus.Options{Topics: map[string]eventbus.TopicOptions{"kept": {Keep: time.Hour}}}
			bus, err := eventbus.Open(ctx, url, o, inmemory.Driver{}, bolt.Driver{}, redisstream.Driver{}, nats.Driver{})
			require.NoError(t, err)
			defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()

			all := settled(ctx, t, bus, "kept")
			require.Equal(t, append(all, "last"), fromEarliest(ctx, t, bus, "kept"))
			all = settled(ctx, t, bus, "plain")
			for broker.forgets && depth(ctx, t, bus, "plain") > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			got := fromEarliest(ctx, t, bus, "plain")
			require.Equal(t, append(all, "last")[len(all)+1-len(got):], got)
			if broker.forgets {
				require.Equal(t, []string{"last"}, got)
			}
		})
	}
}

// settled publishes ten events, and returns their IDs when a group has settled them and its backlog
// was maintained.
func settled(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) (ids []string) {
	t.Helper()
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "first"}, succeed)
	require.NoError(t, err)
	for i := range 10 {
		ids = append(ids, fmt.Sprint(i))
		require.NoError(t, bus.Publish(ctx, topic, &eventbus.Event{ID: ids[i]}))
	}
	for {
		stats, err := backend.StatsOf(ctx, bus.Backend(), topic, "first")
		require.NoError(t, err)
		if stats.Lag == 0 && stats.InFlight == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	depth(ctx, t, bus, topic)
	return ids
}

// depth returns the number of events that the topic has after Maintain.
func depth(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) int {
	t.Helper()
	b, ok := backend.As[backend.Maintainer](bus.Backend())
	require.True(t, ok)
	_, err := b.Maintain(ctx, topic, "first")
	require.NoError(t, err)
	ms, err := backend.Read(ctx, bus.Backend(), topic, backend.StartEarliest, 100)
	require.NoError(t, err)
	return len(ms)
}

// fromEarliest returns the IDs of the events that a new group gets, up to an event that is published
// after the group was made.
func fromEarliest(ctx context.Context, t *testing.T, bus *eventbus.Bus, topic string) (ids []string) {
	t.Helper()
	handled := make(chan string, 100)
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "new", Start: eventbus.StartEarliest},
		func(_ context.Context, d *eventbus.Delivery) error {
			handled <- d.ID
			return nil
		})
	require.NoError(t, err)
	require.NoError(t, bus.Publish(ctx, topic, &eventbus.Event{ID: "last"}))
	for len(ids) == 0 || ids[len(ids)-1] != "last" {
		select {
		case id := <-handled:
			ids = append(ids, id)
		case <-ctx.Done():
			require.FailNow(t, "the new group waits for its events", "it got %v", ids)
		}
	}
	return ids
}
