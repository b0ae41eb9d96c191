package watch

import "testing"

// The goroutine of a law that was left behind may return after the test has ended. It must
// not fail the test then, because testing panics.
func TestLawLeftBehindFailsNoTest(t *testing.T) {
	w := &Watch{}
	w.enter(left)
	w.enter(cleaning) // it has returned after all
	w.Fails(t, "too late")
}
