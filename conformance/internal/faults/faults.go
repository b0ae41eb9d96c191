// Package faults contains the faults that prove the conformance tests: each test must fail if its
// backend or its bus has one of the faults that the test names.
//
// A fault is a row of a table: an operation, and an effect on its calls, such as a lost
// result, a call that happens twice, or an error of another class. One wrapper of a backend
// ([Fault.Wrap]) and one of a bus ([Fault.Bus]) let every fault happen.
package faults

import (
	"slices"

	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
)

// A Fault is one way in which a backend or a bus can break its promises.
type Fault struct {
	Name   string // a few words joined by '-', such as "publish-twice"; faults of the bus begin with "bus-"
	Breaks string // the false promise that is kept in place of the true one

	// A fault of a backend has On and either Do or New. Do is the effect on each call of the
	// operations On (nil: on all operations). New returns such an effect with its own state.
	On  []Op
	Do  effect
	New func() effect

	// Driver: the fault is in the driver of each process, and not in the broker that all
	// processes share.
	Driver bool

	// Member: the fault is in the runtime of the bus, but its effect is on the calls that the
	// bus makes to its backend.
	Member bool

	bus *busFault // of another fault of the bus
}

// OfBus reports whether f is a fault of the bus.
func (f Fault) OfBus() bool { return f.bus != nil || f.Member }

// Wrap returns a backend that behaves like good, except for the fault.
func (f Fault) Wrap(good faultbroker.Store) faultbroker.Store {
	do := f.Do
	if f.New != nil {
		do = f.New()
	}
	return &store{Store: good, on: f.On, effect: do}
}

// None is a fault without an effect. If a test fails with None, the test is wrong, or a
// wrapper of this package.
var None = Fault{Name: "none", Breaks: "nothing", Do: (*Call).Next}

// All returns every fault, first those of backends.
func All() []Fault { return slices.Concat(ofBackends(), ofBuses()) }

// Find returns the fault of that name.
func Find(name string) (Fault, bool) {
	all := All()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return all[i], true
}
