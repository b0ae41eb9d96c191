package watch

import "testing"

// TestLawLeftBehindFailsNoTest runs a law that returns after it was left behind, when the
// test has ended. The law must not fail the test then, because package testing would panic.
func TestLawLeftBehindFailsNoTest(t *testing.T) {
	w := &Watch{}
	w.enter(left)
	w.enter(cleaning) // the law returns after it was left behind
	w.Fails(t, "too late")
}
