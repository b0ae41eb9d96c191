package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// A group without a leader prevents purges of its topic, because its progress is unknown,
// until it is deleted. It does not prevent purges of other topics in the same stream.
func TestGroupWithoutLeader(t *testing.T) {
	t.Parallel()
	r, o := new(rig), clustered()
	o.Stream = "events"
	b := r.open(t, o, clusterOf(natstest.StartCluster(t)))
	members := map[string]backend.Source{}
	for _, topic := range []string{"well", "ill"} {
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: "g", Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic}}))
		members[topic] = s
	}
	l := r.line(b)
	js := l.admin(t)
	lost, err := js.CreateConsumer(t.Context(), "events", jetstream.ConsumerConfig{
		Durable: "ill=lost", FilterSubject: o.Namespace + ".ill", AckPolicy: jetstream.AckExplicitPolicy, Replicas: 1,
	})
	require.NoError(t, err)
	leader := lost.CachedInfo().Cluster.Leader
	killed := false
	for _, s := range l.servers {
		if s.Name() == leader {
			s.Kill()
			killed = true
		}
	}
	require.True(t, killed, leader)
	require.Eventually(t, func() bool { // the other two elect leaders
		for _, topic := range []string{"well", "ill"} {
			ds, err := members[topic].Receive(t.Context(), 1, 0)
			if err == nil && len(ds) > 0 {
				err = members[topic].Ack(t.Context(), backend.Lend(ds))
			}
			if err != nil {
				return false
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond)

	maintain := func(topic string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := b.(backend.Maintainer).Maintain(ctx, topic, "g")
		return err
	}
	left := func(topic string) bool {
		s, err := b.(backend.Statser).Stats(t.Context(), topic, "g")
		return err != nil || s.Depth > 0
	}
	require.Eventually(t, func() bool { return maintain("well") == nil && !left("well") }, time.Minute, 100*time.Millisecond)
	err = maintain("ill")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "ill=lost")
	require.True(t, left("ill"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = js.DeleteConsumer(ctx, "events", "ill=lost") // deletes it, but its server does not answer
	require.Eventually(t, func() bool { return maintain("ill") == nil && !left("ill") }, time.Minute, 100*time.Millisecond)
}
