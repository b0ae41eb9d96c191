// Package badbus has the saboteurs of the bus. Each saboteur breaks one promise of a good
// bus, and a law of the suite must fail for it.
package badbus

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Saboteur breaks a bus in one way. A field that is set changes the arguments of a method
// of the bus or of New, or replaces the method.
type Saboteur struct {
	Name   string // names the fault, such as "bus-reads-ahead"
	Breaks string // the false promise that the broken bus keeps in place of the true promise

	options   func(*eventbus.Options)
	backend   func(backend.Backend) backend.Backend
	subscribe func(*eventbus.SubscribeOptions)
	publish   func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error)
	at        func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error
	cancel    func(b *Bus, ctx context.Context, topic string, ids []string) ([]bool, error)
	list      func(b *Bus, ctx context.Context, topic string) iter.Seq2[eventbus.ScheduledEvent, error]
	recur     func(b *Bus, ctx context.Context, r eventbus.Recurring) error
	ends      func(b *Bus, ctx context.Context, topic string, ids []string) ([]bool, error)
	pauses    func(b *Bus, ctx context.Context, topic, id string, paused bool) error
	topics    func(b *Bus, ctx context.Context, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) // if o.Topics is set
	handler   func(b *Bus, topic string, next eventbus.Handler) eventbus.Handler
	manual    func(next eventbus.ManualHandler) eventbus.ManualHandler
	bounds    func(*eventbus.Batch)
	batch     func(bounds eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler
	shutdown  func(b *Bus, ctx context.Context) error
	ready     func() error
}

// All returns every saboteur.
func All() []Saboteur {
	return slices.Concat(publishing, consuming, batching, deciding, redriving, limiting, ending, staying, replacing, wrapping, scheduling, repeating, each, spreading, elastic, serving, dividing)
}

// Find returns the saboteur with the given name, or false if there is none.
func Find(name string) (Saboteur, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Saboteur) bool { return s.Name == name })
	if i < 0 {
		return Saboteur{}, false
	}
	return all[i], true
}

// A Bus calls a good eventbus.Bus. Its saboteur changes or replaces some of the calls.
type Bus struct {
	good *eventbus.Bus
	s    Saboteur
	turn chan struct{}
	shut atomic.Bool

	reply atomic.Value // the Correlation of the last reply, for bus-mixes-replies
}

// New returns a bus that s breaks. It is shut down when the test ends.
func (s Saboteur) New(t *testing.T, b backend.Backend, o eventbus.Options) *Bus {
	if s.options != nil {
		s.options(&o)
	}
	if s.backend != nil {
		b = s.backend(b)
	}
	good, err := eventbus.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	bad := &Bus{good: good, s: s, turn: make(chan struct{}, 1)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
		defer cancel()
		_ = bad.good.Shutdown(ctx)
	})
	return bad
}

// Publish calls PublishReceipts.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*eventbus.Event) error {
	_, err := b.PublishReceipts(ctx, topic, events...)
	return err
}

// PublishReceipts calls the saboteur's publish if it is set, or else the good bus. It returns
// a receipt for each event, even if the saboteur returns fewer.
func (b *Bus) PublishReceipts(ctx context.Context, topic string, events ...*eventbus.Event) ([]eventbus.Receipt, error) {
	if b.s.publish == nil {
		return b.good.PublishReceipts(ctx, topic, events...)
	}
	receipts, err := b.s.publish(b, ctx, topic, events)
	return append(receipts, make([]eventbus.Receipt, max(0, len(events)-len(receipts)))...), err
}

// Declare calls Declare of the good bus, with the options that the saboteur has changed.
func (b *Bus) Declare(ctx context.Context, topic string, o eventbus.SubscribeOptions) error {
	if b.s.Name == "bus-declares-nothing" {
		return nil
	}
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	return b.good.Declare(ctx, topic, o)
}

// Subscribe lets the saboteur change the options and the handler, then subscribes.
func (b *Bus) Subscribe(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	if b.s.handler != nil {
		h = b.s.handler(b, topic, h)
	}
	if b.s.topics != nil && len(o.Topics) > 0 {
		return b.s.topics(b, ctx, o, h)
	}
	if b.s.Name == "bus-mends-names" {
		topic, o.Group, o.DeadLetter = mend(topic), mend(o.Group), mend(o.DeadLetter)
	}
	sub, err := b.good.Subscribe(ctx, topic, o, h)
	if err == nil && b.s.Name == "bus-keeps-newcomers-waiting" && len(b.good.Subscriptions()) > 1 {
		sub.Pause()
	}
	return sub, err
}

// SubscribeManual lets the saboteur change the options and the handler, then subscribes.
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error) {
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	if b.s.manual != nil {
		h = b.s.manual(h)
	}
	return b.good.SubscribeManual(ctx, topic, o, h)
}

// SubscribeBatch lets the saboteur change all arguments but the topic, then subscribes.
func (b *Bus) SubscribeBatch(ctx context.Context, topic string, o eventbus.SubscribeOptions, batch eventbus.Batch, h eventbus.BatchHandler) (*eventbus.Subscription, error) {
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	if b.s.batch != nil {
		h = b.s.batch(batch, h)
	}
	if b.s.bounds != nil {
		b.s.bounds(&batch)
	}
	return b.good.SubscribeBatch(ctx, topic, o, batch, h)
}

// Backend returns the backend of the good bus, which the saboteur may have wrapped.
func (b *Bus) Backend() backend.Backend { return b.good.Backend() }

// Ready calls the saboteur's ready if it is set, or else Ready of the good bus.
func (b *Bus) Ready(ctx context.Context) error {
	if b.s.ready != nil {
		return b.s.ready()
	}
	return b.good.Ready(ctx)
}

// Shutdown calls the saboteur's shutdown if it is set, or else Shutdown of the good bus.
func (b *Bus) Shutdown(ctx context.Context) error {
	if b.s.shutdown != nil {
		return b.s.shutdown(b, ctx)
	}
	return b.good.Shutdown(ctx)
}
