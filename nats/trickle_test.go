package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// trickle publishes single messages until pulls ask for single messages.
func (s *stage) trickle() {
	for range trickle + 2 {
		s.publish(1)
		require.NoError(s, s.member.Ack(s.Context(), backend.Lend(s.receive(10, 1))))
	}
}

// Pulls ask for one message while messages trickle in, and for many once there are more.
func TestTrickle(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.trickle()
	s.publish(20)
	require.Eventually(t, func() bool { // the group learns of stored messages a moment later
		var info jetstream.ConsumerInfo
		require.NoError(t, s.ask(t.Context(), consumerInfo(s.place("orders"), "billing"), nil, &info))
		return info.NumPending == 20
	}, 5*time.Second, time.Millisecond)
	ds := s.receive(10, 1)
	require.NoError(t, s.member.Ack(t.Context(), backend.Lend(ds)))
	s.receive(10, 10)
	s.receive(100, 9)
}

// Due retries arrive together even after a trickle: a Receive that returns less than its
// limit has returned all due retries.
func TestTrickleOfRetries(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(20)
	ds := s.receive(20, 20)
	s.trickle()
	delayed := make([]backend.Delayed, len(ds))
	for i := range ds {
		delayed[i] = backend.Delayed{Delivery: ds[i]}
	}
	require.NoError(t, s.member.Delay(t.Context(), delayed))
	again := s.receive(20, 20)
	require.Equal(t, slices.Repeat([]int{2}, 20), attempts(again))
}
