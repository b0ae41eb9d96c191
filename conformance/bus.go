package conformance

import (
	"context"
	"testing"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Bus is what the laws of the bus run on: an [*eventbus.Bus], or something
// around one.
type Bus interface {
	eventbus.Publisher
	eventbus.Subscriber
	SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error)
	Ready(ctx context.Context) error
	Shutdown(ctx context.Context) error
}

var _ Bus = (*eventbus.Bus)(nil)

// newBus returns the bus that the laws run on.
func (s *Suite) newBus(t *testing.T, b backend.Backend, o eventbus.Options) Bus {
	if s.Bus != nil {
		return s.Bus(t, b, o)
	}
	bus, err := eventbus.New(b, o)
	if err != nil {
		t.Fatalf("the bus refuses the law's options: %v", err)
	}
	return bus
}
