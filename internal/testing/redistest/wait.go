package redistest

import (
	"testing"
	"time"
)

// until calls ready every few milliseconds until it returns nil. The test fails after
// startLimit.
func until(t testing.TB, what string, ready func() error) {
	t.Helper()
	limit := time.After(startLimit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("redistest: %s within %v: %v", what, startLimit, err)
		case <-t.Context().Done():
			t.Fatalf("redistest: %s before the test ended: %v", what, err)
		}
	}
}
