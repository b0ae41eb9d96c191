package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

func TestDecide(t *testing.T) {
	broken := errors.New("broken")
	p := policy(3, func(h *Hold, _ error) time.Duration { return time.Duration(h.Attempt) * time.Second })
	endless := policy(0, func(h *Hold, _ error) time.Duration { return time.Duration(h.Attempt) * time.Second })
	leaves, discards := p, p
	leaves.LeaveTimeouts = true
	discards.Plan = func(_ *Hold, _ error, plan *Plan) { *plan = Plan{MaxAttempts: 3, Discard: true} }
	for _, c := range []struct {
		name   string
		policy Policy
		run    result
		want   verdict
	}{
		{"success", p, result{hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Acknowledge}},
		{"success after the lease", p, result{hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Lost: true}}, verdict{outcome: observer.Acknowledge}},
		{"success though interrupted", p, result{hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Interrupted: true}}, verdict{outcome: observer.Acknowledge}},
		{"first failure", p, result{err: broken, hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Retry, after: time.Second, most: 3}},
		{"second failure", p, result{err: broken, hold: &Hold{Attempt: 2}}, verdict{outcome: observer.Retry, after: 2 * time.Second, most: 3}},
		{"last failure", p, result{err: broken, hold: &Hold{Attempt: 3}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"beyond the last", p, result{err: broken, hold: &Hold{Attempt: 9}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"no limit", endless, result{err: broken, hold: &Hold{Attempt: 900}}, verdict{outcome: observer.Retry, after: 900 * time.Second}},
		{"permanent", p, result{err: fmt.Errorf("x: %w", Permanent(broken)), hold: &Hold{Attempt: 1}}, verdict{outcome: observer.DeadLetter, reason: ReasonPermanent}},
		{"permanent though interrupted", p, result{err: Permanent(broken), hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Interrupted: true}}, verdict{outcome: observer.DeadLetter, reason: ReasonPermanent}},
		{"retry after", p, result{err: RetryAfter(broken, time.Hour), hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Retry, after: time.Hour, most: 3}},
		{"retry after, at the end", p, result{err: RetryAfter(broken, time.Hour), hold: &Hold{Attempt: 3}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"snooze", p, result{err: Snooze(time.Hour), hold: &Hold{Attempt: 3}}, verdict{outcome: observer.Snooze, after: time.Hour}},
		{"expired", p, result{err: Expired(time.Unix(0, 0), false), hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Discard, reason: ReasonExpired}},
		{"expired, kept", p, result{err: Expired(time.Unix(0, 0), true), hold: &Hold{Attempt: 1}}, verdict{outcome: observer.DeadLetter, reason: ReasonExpired}},
		{"timeout", p, result{err: &observer.TimeoutError{}, hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Retry, after: time.Second, most: 3}},
		{"timeout, left", leaves, result{err: &observer.TimeoutError{}, hold: &Hold{Attempt: 2}}, verdict{outcome: observer.Forget, reason: leftToLease, most: 3}},
		{"last timeout, not left", leaves, result{err: &observer.TimeoutError{}, hold: &Hold{Attempt: 3}}, verdict{outcome: observer.DeadLetter, reason: ReasonExhausted}},
		{"last failure, discarded", discards, result{err: broken, hold: &Hold{Attempt: 3}}, verdict{outcome: observer.Discard, reason: ReasonExhausted}},
		{"drop", p, result{err: Drop("old"), hold: &Hold{Attempt: 1}}, verdict{outcome: observer.Discard, reason: ReasonDropped}},
		{"drop after its acknowledgement", p, result{err: Drop("old"), hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Leaseless: true}}, verdict{outcome: observer.Discard, reason: ReasonDropped}},
		{"interrupted", p, result{err: context.Canceled, hold: &Hold{Attempt: 3}, Returned: ledger.Returned{Interrupted: true}}, verdict{outcome: observer.Return}},
		{"failure after the lease", p, result{err: broken, hold: &Hold{Attempt: 3}, Returned: ledger.Returned{Lost: true}}, verdict{outcome: observer.Forget}},
		{"permanent after the lease", p, result{err: Permanent(broken), hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Lost: true}}, verdict{outcome: observer.Forget}},
		{"failure after its acknowledgement, buried", Policy{BuryReceived: true}, result{err: Permanent(broken), hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Leaseless: true}}, verdict{outcome: observer.DeadLetter, reason: ReasonOnReceive}},
		{"failure after its acknowledgement", p, result{err: broken, hold: &Hold{Attempt: 1}, Returned: ledger.Returned{Leaseless: true}}, verdict{outcome: observer.Discard, reason: ReasonOnReceive}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.policy.decide(nil, c.run)) })
	}
}

func TestSuspects(t *testing.T) {
	for _, c := range []struct{ max, deliveries int }{{12, 36}, {1, 17}, {8, 24}, {3, 19}, {0, 0}} {
		p := Policy{MaxAttempts: c.max, exact: true}
		require.False(t, p.suspect(&Hold{Attempt: c.max}))
		require.Equal(t, c.max > 0, p.suspect(&Hold{Attempt: c.max + 1}))
		require.False(t, p.spent(&Hold{Attempt: c.deliveries}))
		require.Equal(t, c.max > 0, p.spent(&Hold{Attempt: c.deliveries + 1}))
	}
}

// An event that sets a higher limit of attempts is neither suspect nor spent until it reaches that
// limit.
func TestSuspectsThatAskForMore(t *testing.T) {
	asks := func(n int) Policy {
		return Policy{MaxAttempts: 3, exact: true, OwnAttempts: func(*Hold) (int, bool) { return n, n >= 0 }}
	}
	for _, c := range []struct {
		asked, attempt int
		suspect, spent bool
	}{
		{-1, 4, true, false},
		{-1, 20, true, true},
		{100, 100, false, false},
		{100, 101, true, false},
		{100, 301, true, true},
		{2, 3, false, false},
		{2, 20, true, true},
		{0, 1000, false, false},
	} {
		h := &Hold{Attempt: c.attempt}
		require.Equal(t, c.suspect, asks(c.asked).suspect(h), "asked for %d, attempt %d", c.asked, c.attempt)
		require.Equal(t, c.spent, asks(c.asked).spent(h), "asked for %d, attempt %d", c.asked, c.attempt)
	}
}

func TestSignalsOfNil(t *testing.T) {
	require.NoError(t, Permanent(nil))
	require.Error(t, RetryAfter(nil, time.Second))
}
