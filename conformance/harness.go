package conformance

import (
	"context"
	"testing"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A harness makes the backends of a law, and harms them. Suite of package conformance
// documents the fields. All but New and Bus may be nil.
type harness struct {
	New        func(t *testing.T) backend.Backend
	NewBounded func(t *testing.T, messages int) backend.Backend
	Peer       func(t *testing.T, b backend.Backend) backend.Backend
	Bus        func(t *testing.T, b backend.Backend, o eventbus.Options) harnessBus
	Faults     harnessFaults
}

// A harnessBus is a bus as its laws use it.
type harnessBus interface {
	eventbus.Publisher
	eventbus.Subscriber
	SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error)
	Ready(ctx context.Context) error
	Shutdown(ctx context.Context) error
}

// harnessFaults do harm. Faults of package conformance documents them.
type harnessFaults struct {
	Down      func(t *testing.T, b backend.Backend) (up func())
	Freeze    func(t *testing.T, b backend.Backend) (thaw func())
	Swallow   func(t *testing.T, b backend.Backend) (end func())
	Cut       func(t *testing.T, b backend.Backend)
	DropReply func(t *testing.T, b backend.Backend, kind request)
	Restart   func(t *testing.T, b backend.Backend)
	Kill      func(t *testing.T, b backend.Backend)
	Lose      func(t *testing.T, b backend.Backend, topic, position string)
	Commands  func(t *testing.T, b backend.Backend) int64
}

// A request is a kind of request that a backend sends to its broker.
type request string

// The kinds of requests whose answers laws drop.
const (
	requestPublish request = "publish"
	requestReceive request = "receive"
	requestAck     request = "ack"
)
