package engine

import (
	"time"

	"github.com/seed41896749/eventbus/internal/ledger"
)

type instant = ledger.Instant

// A clock converts between time.Time and instant.
type clock struct{ epoch time.Time }

// newClock returns a clock whose current time is instant 1, because 0 means no time.
func newClock() clock { return clock{time.Now().Add(-1)} }

// now returns the current time.
func (c clock) now() instant { return instant(time.Since(c.epoch)) }

// instant returns t as an instant.
func (c clock) instant(t time.Time) instant { return instant(t.Sub(c.epoch)) }

// time returns m as a time.Time, or the zero Time if m is zero.
func (c clock) time(m instant) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return c.epoch.Add(time.Duration(m))
}
