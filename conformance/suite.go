// Package conformance tests whether a backend keeps the contract of package
// backend. A backend that passes works with the bus; nothing else is needed.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Suite{Name: "mine", New: func(t *testing.T) backend.Backend { … }})
//	}
//
// The laws of the driver run on the backend itself; those of the bus on a bus on
// it, and end with a look at the whole history. Each law is a subtest. A law about a verb or a fact that the backend does not
// claim is skipped and reported as not claimed; what it claims must hold.
package conformance

import (
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Suite says how to test one backend.
type Suite struct {
	// Name is the backend's, for reports.
	Name string

	// New returns a backend that shares nothing with earlier ones, and has it
	// closed by t.Cleanup. It is called once for each law.
	New func(t *testing.T) backend.Backend

	// NewBounded, if set, is like New, but the backend has room for so many
	// messages of a few bytes and refuses more with [backend.ErrFull]. What is
	// settled and maintained makes room again.
	NewBounded func(t *testing.T, messages int) backend.Backend

	// Lease is what a lease is in the tests; a second if zero. The slowest call
	// to the backend should take less than half of it.
	Lease time.Duration

	// Around, if set, wraps every law, for example in synctest.Test.
	Around func(t *testing.T, f func(*testing.T))

	// Parallel lets laws run at the same time, as many as go test -parallel
	// allows: on a real clock they mostly wait.
	Parallel bool

	// Bus, if set, returns what the laws of the bus run on, in place of
	// eventbus.New: for buses that are wrapped, or broken.
	Bus func(t *testing.T, b backend.Backend, o eventbus.Options) Bus

	// Faults are what the suite can do to the broker; those not set are not
	// tried.
	Faults Faults
}

// Faults are ways to harm the broker behind a backend, which is one that New
// returned. They report what keeps them from doing so to t.
type Faults struct {
	// Restart stops the broker in good order and starts it again on its data.
	Restart func(t *testing.T, b backend.Backend)

	// Kill ends the broker without a warning and starts it again on its data.
	Kill func(t *testing.T, b backend.Backend)

	// Freeze lets the broker answer nothing, its connections open, until thaw is
	// called. Thawing twice does no harm.
	Freeze func(t *testing.T, b backend.Backend) (thaw func())

	// Cut breaks every connection to the broker. New ones are let through.
	Cut func(t *testing.T, b backend.Backend)

	// DropReply lets the next request to the broker take effect and loses its
	// answer, with the connection.
	DropReply func(t *testing.T, b backend.Backend)
}

// Run tests every law.
func Run(t *testing.T, s Suite) {
	if s.Lease == 0 {
		s.Lease = time.Second
	}
	if s.Around == nil {
		s.Around = func(t *testing.T, f func(*testing.T)) { f(t) }
	}
	for _, l := range laws() {
		t.Run(l.subtest(), func(t *testing.T) {
			if s.Parallel {
				t.Parallel()
			}
			s.run(t, l)
		})
	}
}

// run tests one law and reports what came of it.
func (s *Suite) run(t *testing.T, l law) {
	var e *driverEnv
	defer func() {
		switch {
		case t.Failed():
			report(t, s.Name, l, fail)
		case e == nil: // New skipped the test
		case e.unclaimed != "":
			report(t, s.Name, l, notClaimed)
		default:
			report(t, s.Name, l, pass)
		}
	}()
	s.Around(t, func(t *testing.T) {
		e = newDriverEnv(t, s, l)
		if e.unclaimed = e.missing(); e.unclaimed == "" {
			l.run(e)
		}
	})
	if e != nil && e.unclaimed != "" && !t.Failed() {
		t.Skipf("not claimed: %s", e.unclaimed)
	}
}
