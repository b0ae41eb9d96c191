package nats_test

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// A new leader of a consumer has forgotten which messages were given back. It delivers them when
// their leases have ended, after new messages. The new owner of a partition waits for them.
func TestNewOwnerAfterNewLeader(t *testing.T) {
	t.Parallel()
	const lease, given, published = 20 * time.Second, 3, 5
	r, o := new(rig), clustered()
	b := r.open(t, o, clusterOf(natstest.StartCluster(t)))
	bus, err := eventbus.New(b, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 1}}})
	require.NoError(t, err)
	publish := func(n int) {
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: strconv.Itoa(n), Key: "k"}))
	}
	earlier, err := b.Attach(t.Context(), backend.Config{Topic: "orders.partition-0", Group: "g", Start: backend.StartEarliest, Lease: lease / 2})
	require.NoError(t, err)
	for n := range given {
		publish(n)
	}
	var held []backend.Delayed
	for len(held) < given {
		ds, err := earlier.Receive(t.Context(), given, 0)
		require.NoError(t, err)
		for _, d := range ds {
			held = append(held, backend.Delayed{Delivery: d})
		}
	}
	require.NoError(t, earlier.(backend.Delayer).Delay(t.Context(), held))
	require.NoError(t, earlier.Close())
	stepDown(t, r.line(b).admin(t), o.Namespace+"=orders+partition-0", "g")
	for n := given; n < published; n++ {
		publish(n)
	}

	got := make(chan string, 2*published)
	_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Lease: lease}, func(_ context.Context, d *eventbus.Delivery) error {
		got <- d.ID
		return nil
	})
	require.NoError(t, err)
	for n := range published {
		require.Equal(t, strconv.Itoa(n), <-got)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
}

// stepDown makes another server the leader of a consumer.
func stepDown(t *testing.T, js jetstream.JetStream, stream, consumer string) {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	c, err := s.Consumer(t.Context(), consumer)
	require.NoError(t, err)
	before := c.CachedInfo().Cluster.Leader
	m, err := js.Conn().RequestWithContext(t.Context(), "$JS.API.CONSUMER.LEADER.STEPDOWN."+stream+"."+consumer, nil)
	require.NoError(t, err)
	var answer struct{ Success bool }
	require.NoError(t, json.Unmarshal(m.Data, &answer))
	require.True(t, answer.Success, string(m.Data))
	require.Eventually(t, func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.Cluster.Leader != "" && info.Cluster.Leader != before
	}, 20*time.Second, 50*time.Millisecond)
}
