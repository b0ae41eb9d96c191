package engine

import (
	"time"

	"github.com/seed41896749/eventbus/internal/ledger"
)

type instant = ledger.Instant

// A clock converts between time.Time and moment.
type clock struct{ epoch time.Time }

// newClock returns a clock for which now is moment 1, because 0 means no time.
func newClock() clock { return clock{time.Now().Add(-1)} }

// now returns the present moment.
func (c clock) now() instant { return instant(time.Since(c.epoch)) }

// moment returns t as a moment.
func (c clock) instant(t time.Time) instant { return instant(t.Sub(c.epoch)) }

// time returns m as a time.Time; the zero Time if m is zero.
func (c clock) time(m instant) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(m))
}
