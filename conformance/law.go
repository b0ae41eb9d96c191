package conformance

// A law is one promise and its test.
type law struct {
	ID        string   // as in the catalogue of cases, or C and a number; laws of the bus put B. before it
	Name      string   // a few words joined by '-'; id and name are unique together
	Promise   string   // what holds, in words
	Needs     []need   // what the backend must claim for the law to apply
	Saboteurs []string // names in packages badbackend and badbus of who breaks it, at least one

	Again     bool // a settled event may come again here
	Uncounted bool // attempt numbers mean nothing here: a handler changes them, or time is turned back

	Test func(*driverEnv)
}

// Subtest is the name of the subtest that tests l.
func (l law) Subtest() string { return l.ID + "-" + l.Name }

// String states the law.
func (l law) String() string { return l.ID + " " + l.Name + ": " + l.Promise }

// GoesBy reports whether a suite means l, or l among others, by this ID or name.
func (l law) GoesBy(id string) bool { return id == l.ID || id == l.Subtest() }
