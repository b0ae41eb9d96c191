package conformance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/inmemory"
)

// The author of a backend writes only this function, in a test of the backend's package.
func ExampleRun() {
	TestConformance := func(t *testing.T) {
		conformance.Run(t, conformance.Suite{
			Name:   "mine",
			New:    func(*testing.T) backend.Backend { return inmemory.New(inmemory.Options{}) }, // put your backend here
			Lease:  30 * time.Second,
			Around: synctest.Test, // leave this out if the backend talks to a broker
		})
	}
	_ = TestConformance // go test finds this function by its name
	// Output:
}
