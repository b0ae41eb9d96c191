package conformance

import "testing"

// A law that was left behind may go on at any time, when its test has ended and bears
// no more failures.
func TestLeftBehind(t *testing.T) {
	w := &watch{}
	w.enter(left)
	w.enter(cleaning) // it has returned after all
	w.Fails(t, "too late")
}
