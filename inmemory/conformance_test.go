package inmemory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance"
	"github.com/seed41896749/eventbus/inmemory"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Suite{
		Name: "inmemory",
		New: func(t *testing.T) backend.Backend {
			return open(t, inmemory.Options{MaxBytes: 16 << 20})
		},
		NewBounded: func(t *testing.T, messages int) backend.Backend {
			return open(t, inmemory.Options{MaxMessages: messages})
		},
		Lease:  30 * time.Second,
		Around: synctest.Test,
		Engine: true,
	})
}
