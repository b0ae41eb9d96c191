package nats

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Due retries arrive together even after single messages: a Receive that returns less than
// its limit has returned all due retries.
func TestRetriesAfterATrickle(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.publish(20)
	ds := s.receive(20, 20)
	for range 4 {
		s.publish(1)
		require.NoError(s, s.member.Ack(s.Context(), backend.Lend(s.receive(10, 1))))
	}
	delayed := make([]backend.Delayed, len(ds))
	for i := range ds {
		delayed[i] = backend.Delayed{Delivery: ds[i]}
	}
	require.NoError(t, s.member.Delay(t.Context(), delayed))
	again := s.receive(20, 20)
	require.Equal(t, slices.Repeat([]int{2}, 20), attempts(again))
}
