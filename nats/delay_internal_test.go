package nats

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Delay calls in close succession are spaced by 200 ms, after the first few. After a second
// without calls, a few may follow quickly again.
func TestPace(t *testing.T) {
	t.Parallel()
	var r delayRate
	began := time.Now()
	turns := func(n int, now time.Time) (all []time.Duration) {
		for range n {
			var turn time.Time
			turn, r = r.next(now)
			all = append(all, turn.Sub(began).Round(time.Millisecond)/time.Millisecond)
		}
		return all
	}
	require.Equal(t, []time.Duration{0, 15, 30, 45, 60, 200, 400, 600}, turns(8, began))
	require.Equal(t, []time.Duration{3000, 3015, 3030, 3045, 3060, 3200}, turns(6, began.Add(3*time.Second)))
}

// Due retries arrive together even after single messages: a Receive that returns less than
// its limit has returned all due retries.
func TestRetriesAfterATrickle(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
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
