package watch

import "testing"

// A law that was left behind may return when its test has ended. A test that has ended
// cannot fail any more.
func TestLawLeftBehindFailsNoTest(t *testing.T) {
	w := &Watch{}
	w.enter(left)
	w.enter(cleaning) // it has returned after all
	w.Fails(t, "too late")
}
