package law

import (
	"context"
	"iter"
	"testing"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Harness holds the functions that make the backends of a law and harm them. Its fields are
// fields of Suite in package conformance, which documents them. All fields except New and
// Bus may be nil.
type Harness struct {
	New        func(t *testing.T) backend.Backend
	NewBounded func(t *testing.T, messages int) backend.Backend
	Peer       func(t *testing.T, b backend.Backend) backend.Backend
	Bus        func(t *testing.T, b backend.Backend, o eventbus.Options) Bus
	Faults     Faults
}

// A Bus is the interface of Bus in package conformance.
type Bus interface {
	eventbus.Publisher
	eventbus.ReceiptPublisher
	eventbus.Subscriber
	SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error)
	SubscribeBatch(ctx context.Context, topic string, o eventbus.SubscribeOptions, batch eventbus.Batch, h eventbus.BatchHandler) (*eventbus.Subscription, error)
	Declare(ctx context.Context, topic string, o eventbus.SubscribeOptions) error
	eventbus.Scheduler
	CancelScheduled(ctx context.Context, topic string, ids ...string) ([]bool, error)
	Scheduled(ctx context.Context, topic string) iter.Seq2[eventbus.ScheduledEvent, error]
	Recur(ctx context.Context, r eventbus.Recurring) error
	EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error)
	PauseRecurring(ctx context.Context, topic, id string, paused bool) error
	RecurringEntries(ctx context.Context, topic string) ([]eventbus.RecurringState, error)
	Ready(ctx context.Context) error
	Backend() backend.Backend
	Shutdown(ctx context.Context) error
}

// Faults holds the functions that harm the broker. Faults in package conformance documents
// them.
type Faults struct {
	Down      func(t *testing.T, b backend.Backend) (up func())
	Freeze    func(t *testing.T, b backend.Backend) (thaw func())
	Swallow   func(t *testing.T, b backend.Backend) (end func())
	Cut       func(t *testing.T, b backend.Backend)
	DropReply func(t *testing.T, b backend.Backend, kind Request)
	Restart   func(t *testing.T, b backend.Backend)
	Kill      func(t *testing.T, b backend.Backend)
	Lose      func(t *testing.T, b backend.Backend, topic, position string)
	Commands  func(t *testing.T, b backend.Backend) int64
}

// A Request is a kind of request that a backend sends to its broker.
type Request string

// The kinds of requests whose answers [Faults].DropReply can drop.
const (
	RequestPublish Request = "publish"
	RequestReceive Request = "receive"
	RequestAck     Request = "ack"
)
