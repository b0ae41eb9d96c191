// Package law defines a law, and the environment for laws of the backend contract: a fresh
// backend, steps that call it, faults that harm it, and the verdict.
package law

// A Law is one promise and its test.
type Law struct {
	ID        string   // for example C08; IDs of the bus begin with "B."
	Name      string   // a few words joined by '-'; ID and Name are unique together
	Promise   string   // the promise in words
	Needs     []Need   // the law does not apply to a backend that does not claim all of these
	Saboteurs []string // at least one, of package badbackend or badbus; this law must fail with each

	Again     bool // settled events may be redelivered, so the history is not checked
	Uncounted bool // attempt numbers are not checked, because they may repeat or skip here

	Test func(*Env) // fails if the promise does not hold
}

// Subtest is the name of the subtest that tests l.
func (l Law) Subtest() string { return l.ID + "-" + l.Name }

// String states the law.
func (l Law) String() string { return l.ID + " " + l.Name + ": " + l.Promise }

// GoesBy reports whether id is l.ID, which several laws may share, or l.Subtest().
func (l Law) GoesBy(id string) bool { return id == l.ID || id == l.Subtest() }
