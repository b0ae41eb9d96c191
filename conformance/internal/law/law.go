// Package law defines a law. It gives a law of the backend contract its environment: a
// fresh backend, steps that call the backend, faults that harm it, and the verdict.
package law

// A Law is one promise and its test.
type Law struct {
	ID        string   // for example C08; IDs of the bus begin with "B."
	Name      string   // a few words joined by '-'; ID and Name are unique together
	Promise   string   // the promise in words
	Needs     []Need   // claims of the backend without which the law does not apply
	Saboteurs []string // in packages badbackend and badbus; each breaks this law, and there is at least one

	Again     bool // a settled event may be redelivered here
	Uncounted bool // attempt numbers mean nothing here: a handler changes them, or time is turned back

	Test func(*Env) // fails if the promise does not hold
}

// Subtest is the name of the subtest that tests l.
func (l Law) Subtest() string { return l.ID + "-" + l.Name }

// String states the law.
func (l Law) String() string { return l.ID + " " + l.Name + ": " + l.Promise }

// GoesBy reports whether an ID or name of a suite means l, alone or among others.
func (l Law) GoesBy(id string) bool { return id == l.ID || id == l.Subtest() }
