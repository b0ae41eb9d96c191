package conformance

import (
	"testing"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/laws"
	"github.com/seed41896749/eventbus/conformance/internal/runner"
)

// Run runs every conformance test, the basic ones first, and prints a short account of the
// results. A test that hangs fails, and names the calls that have not returned. Run stops early
// if a basic test fails or if three tests hang. If a hanging test cannot be ended, Run prints
// the account and ends the process.
func Run(t *testing.T, s Suite) { runner.Run(t, s.options(), laws.All()) }

// options converts the suite to the options of package runner.
func (s *Suite) options() runner.Options {
	return runner.Options{
		Name: s.Name, Lease: s.Lease, Around: s.Around, Parallel: s.Parallel, Weaker: s.Weaker, Grace: s.Grace, Only: s.Only, Engine: s.Engine || s.Bus != nil,
		Harness: &law.Harness{New: s.New, NewBounded: s.NewBounded, Peer: s.Peer, Bus: s.newBus, Faults: s.Faults.harness()},
	}
}

// newBus returns the bus that the laws run on.
func (s *Suite) newBus(t *testing.T, b backend.Backend, o eventbus.Options) law.Bus {
	if s.Bus != nil {
		return s.Bus(t, b, o)
	}
	bus, err := eventbus.New(b, o)
	if err != nil {
		t.Fatalf("eventbus.New rejects the options of the test: %v", err)
	}
	return bus
}

// harness converts f to the type of package law. Package law has its own type, because it
// cannot import this package.
func (f *Faults) harness() law.Faults {
	h := law.Faults{
		Down: f.Down, Freeze: f.Freeze, Swallow: f.Swallow, Cut: f.Cut,
		Restart: f.Restart, Kill: f.Kill, Lose: f.Lose, Commands: f.Commands,
	}
	if f.DropReply != nil {
		h.DropReply = func(t *testing.T, b backend.Backend, kind law.Request) { f.DropReply(t, b, Request(kind)) }
	}
	return h
}
