package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/observer"
)

func TestDecide(t *testing.T) {
	broken := errors.New("broken")
	p := Policy{MaxAttempts: 3, Backoff: func(h *Hold, _ error) time.Duration { return time.Duration(h.attempt) * time.Second }}
	endless := Policy{Backoff: p.Backoff}
	for _, c := range []struct {
		name   string
		policy Policy
		run    run
		want   verdict
	}{
		{"success", p, run{hold: &Hold{attempt: 1}}, verdict{outcome: observer.Acknowledge}},
		{"success after the lease", p, run{hold: &Hold{attempt: 1}, lost: true}, verdict{outcome: observer.Acknowledge}},
		{"success though interrupted", p, run{hold: &Hold{attempt: 1}, interrupted: true}, verdict{outcome: observer.Acknowledge}},
		{"first failure", p, run{err: broken, hold: &Hold{attempt: 1}}, verdict{outcome: observer.Retry, after: time.Second}},
		{"second failure", p, run{err: broken, hold: &Hold{attempt: 2}}, verdict{outcome: observer.Retry, after: 2 * time.Second}},
		{"last failure", p, run{err: broken, hold: &Hold{attempt: 3}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"beyond the last", p, run{err: broken, hold: &Hold{attempt: 9}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"no limit", endless, run{err: broken, hold: &Hold{attempt: 900}}, verdict{outcome: observer.Retry, after: 900 * time.Second}},
		{"permanent", p, run{err: fmt.Errorf("x: %w", Permanent(broken)), hold: &Hold{attempt: 1}}, verdict{outcome: observer.DeadLetter, reason: ReasonPermanent}},
		{"permanent though interrupted", p, run{err: Permanent(broken), hold: &Hold{attempt: 1}, interrupted: true}, verdict{outcome: observer.DeadLetter, reason: ReasonPermanent}},
		{"retry after", p, run{err: RetryAfter(broken, time.Hour), hold: &Hold{attempt: 1}}, verdict{outcome: observer.Retry, after: time.Hour}},
		{"retry after, at the end", p, run{err: RetryAfter(broken, time.Hour), hold: &Hold{attempt: 3}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"snooze", p, run{err: Snooze(time.Hour), hold: &Hold{attempt: 3}}, verdict{outcome: observer.Snooze, after: time.Hour}},
		{"drop", p, run{err: Drop("old"), hold: &Hold{attempt: 1}}, verdict{outcome: observer.Discard, reason: ReasonDropped}},
		{"interrupted", p, run{err: context.Canceled, hold: &Hold{attempt: 3}, interrupted: true}, verdict{outcome: observer.Return}},
		{"failure after the lease", p, run{err: broken, hold: &Hold{attempt: 3}, lost: true}, verdict{outcome: observer.Forget}},
		{"permanent after the lease", p, run{err: Permanent(broken), hold: &Hold{attempt: 1}, lost: true}, verdict{outcome: observer.Forget}},
		{"failure after its acknowledgement", p, run{err: broken, hold: &Hold{attempt: 1}, settled: true}, verdict{outcome: observer.Discard, reason: ReasonOnReceive}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.policy.decide(c.run)) })
	}
}

func TestSuspects(t *testing.T) {
	for _, c := range []struct{ max, deliveries int }{{12, 36}, {1, 17}, {8, 24}, {3, 19}, {0, 0}} {
		p := Policy{MaxAttempts: c.max}
		require.Equal(t, c.deliveries, p.maxDeliveries(), "of %d attempts", c.max)
		require.False(t, p.suspect(c.max))
		require.Equal(t, c.max > 0, p.suspect(c.max+1))
		require.False(t, p.spent(c.deliveries))
		require.Equal(t, c.max > 0, p.spent(c.deliveries+1))
	}
}

func TestSignalsOfNil(t *testing.T) {
	require.NoError(t, Permanent(nil))
	require.Error(t, RetryAfter(nil, time.Second))
}
