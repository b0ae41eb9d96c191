// Package law defines a law, and the environment for laws of the backend contract: a fresh
// backend, steps that call it, faults that harm it, and the verdict.
package law

// A Law is one promise and its test.
type Law struct {
	ID      string   // for example C08; IDs of the bus begin with "B."
	Name    string   // a few words joined by '-'; no two laws have the same ID and Name
	Promise string   // the promise in words
	Needs   []Need   // verbs, limits and fields of the suite; without one of them the law is not claimed
	Faults  []string // names from package faults, at least one; the law must fail with each fault

	Again     bool // a settled event may be redelivered, so the history is not checked
	Engine    bool // the verdict depends on the engine alone, on any backend that passes the laws of the contract
	Uncounted bool // attempt numbers may repeat or skip in this law, so they are not checked

	Test func(*Env) // fails if the promise does not hold
}

// Subtest is the name of the subtest that tests l.
func (l Law) Subtest() string { return l.ID + "-" + l.Name }

// String states the law.
func (l Law) String() string { return l.ID + " " + l.Name + ": " + l.Promise }

// GoesBy reports whether id names the law: by l.ID, which several laws may share, or by
// l.Subtest().
func (l Law) GoesBy(id string) bool { return id == l.ID || id == l.Subtest() }
