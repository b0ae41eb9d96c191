package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What comes back says nothing of what is away, unless that would have come before:
// b2 does not run before b1 has come back.
func TestWhatComesBackIsNoProof(t *testing.T) {
	for _, c := range []struct {
		name   string
		others error // of the first attempts of a1 and c1
		sort   bool  // the backend hands out by position what is overdue
	}{
		{name: "as if it were new", others: Snooze(time.Second)},
		{name: "due later, by position", others: RetryAfter(errors.New("no"), 20*time.Second), sort: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				if c.sort {
					r.wire.sorts, r.wire.noRefund = true, true
				}
				r.limits = r.wire.Limits()
				verdicts := map[string]error{"a1": c.others, "c1": c.others, "b1": RetryAfter(errors.New("no"), 2*time.Second)}
				var ran record
				s := r.sub(Config{Lease: 5 * time.Second, Order: ByKey}, func(_ context.Context, h *Hold) error {
					id := h.Delivery().ID
					ran.add(id)
					time.Sleep(300 * time.Millisecond) // so that few are read at a time
					defer delete(verdicts, id)
					return verdicts[id]
				})
				r.publishKeyed("a", "a1")
				r.publishKeyed("c", "c1")
				r.publishKeyed("b", "b1", "b2")
				r.pass(time.Second)
				require.Equal(r, []string{"a1", "c1", "b1"}, ran.all())
				s.Pause() // as the backend may be away, until both are overdue
				r.pass(25 * time.Second)
				s.Resume()
				r.pass(40 * time.Second)
				require.Equal(r, []string{"a1", "c1", "b1", "a1", "c1", "b1", "b2"}, ran.all())
			})
		})
	}
}
