// Package badbus breaks a good bus: each saboteur breaks one promise, and the
// suite must notice.
package badbus

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// A Saboteur breaks a bus in one way: it stands between the bus and its
// backend, its options, its publishers or its handlers.
type Saboteur struct {
	Name   string // says what it does
	Breaks string // the promise, as a bus broken in this way would state it

	options   func(*eventbus.Options)
	backend   func(backend.Backend) backend.Backend
	subscribe func(*eventbus.SubscribeOptions)
	publish   func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) error
	handler   func(b *Bus, topic string, next eventbus.Handler) eventbus.Handler
	manual    func(next eventbus.ManualHandler) eventbus.ManualHandler
	bounds    func(*eventbus.Batch)
	batch     func(bounds eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler
	shutdown  func(b *Bus, ctx context.Context) error
	ready     func() error
}

// All returns every saboteur.
func All() []Saboteur {
	return slices.Concat(publishing, consuming, batching, deciding, redriving, limiting, ending, wrapping)
}

// Find returns the saboteur of that name.
func Find(name string) (Saboteur, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Saboteur) bool { return s.Name == name })
	if i < 0 {
		return Saboteur{}, false
	}
	return all[i], true
}

// A Bus is an eventbus.Bus, broken.
type Bus struct {
	good *eventbus.Bus
	s    Saboteur
	turn chan struct{}
	shut atomic.Bool
}

// New returns a bus that s has broken. The end of the test shuts it down.
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

// Publish calls the saboteur, if that breaks Publish, and else the good bus.
func (b *Bus) Publish(ctx context.Context, topic string, events ...*eventbus.Event) error {
	if b.s.publish != nil {
		return b.s.publish(b, ctx, topic, events)
	}
	return b.good.Publish(ctx, topic, events...)
}

// Subscribe subscribes with the options and the handler that the saboteur breaks.
func (b *Bus) Subscribe(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	if b.s.handler != nil {
		h = b.s.handler(b, topic, h)
	}
	if b.s.Name == "bus-mends-names" {
		topic, o.Group, o.DeadLetter = mend(topic), mend(o.Group), mend(o.DeadLetter)
	}
	return b.good.Subscribe(ctx, topic, o, h)
}

// SubscribeManual subscribes with the options and the handler that the saboteur breaks.
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o eventbus.SubscribeOptions, h eventbus.ManualHandler) (*eventbus.Subscription, error) {
	if b.s.subscribe != nil {
		b.s.subscribe(&o)
	}
	if b.s.manual != nil {
		h = b.s.manual(h)
	}
	return b.good.SubscribeManual(ctx, topic, o, h)
}

// SubscribeBatch subscribes with the options, the bounds and the handler that the saboteur
// breaks.
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

// Ready calls the saboteur, if that breaks Ready, and else the good bus.
func (b *Bus) Ready(ctx context.Context) error {
	if b.s.ready != nil {
		return b.s.ready()
	}
	return b.good.Ready(ctx)
}

// Shutdown calls the saboteur, if that breaks Shutdown, and else the good bus.
func (b *Bus) Shutdown(ctx context.Context) error {
	if b.s.shutdown != nil {
		return b.s.shutdown(b, ctx)
	}
	return b.good.Shutdown(ctx)
}
