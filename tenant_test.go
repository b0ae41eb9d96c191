package eventbus_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/inmemory"
)

// The example's backend passes the conformance suite.
func TestTenantConformance(t *testing.T) {
	conformance.Run(t, conformance.Suite{
		Name: "tenant",
		New: func(t *testing.T) backend.Backend {
			b := inmemory.New(inmemory.Options{})
			t.Cleanup(func() { _ = b.Close() })
			return tenant{b, "acme."}
		},
		Lease:  30 * time.Second,
		Around: synctest.Test,
	})
}
