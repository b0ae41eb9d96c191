// Package eventbus publishes and subscribes to events in memory, in a file, on Redis Streams, on
// NATS JetStream or on a program's own backend.
//
// Each group gets every event of its topic, in order of its key. Its members share them.
// A [Handler] that returns nil has handled its event. A failed event is
// redelivered, and after the last attempt goes to a dead-letter topic. Delivery is at least
// once, so a handler must tolerate a redelivered event.
package eventbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/publish"
	"github.com/seed41896749/eventbus/observer"
)

// A Publisher stores events.
type Publisher interface {
	// Publish stores events in topic, in the order given. It returns when all events are
	// stored as durably as the backend can. The error is a *FieldError or a *PublishError,
	// see [Bus.Publish]. The Publish of a Bus neither changes nor retains the events.
	Publish(ctx context.Context, topic string, events ...*Event) error
}

// A Subscriber subscribes handlers to topics.
type Subscriber interface {
	// Subscribe makes h a member of the group o.Group of topic.
	Subscribe(ctx context.Context, topic string, o SubscribeOptions, h Handler) (*Subscription, error)
}

// A ManualSubscriber is a [Subscriber] for programs that settle events themselves.
type ManualSubscriber interface {
	// SubscribeManual is like Subscribe, but the program settles each [ManualDelivery].
	SubscribeManual(ctx context.Context, topic string, o SubscribeOptions, h ManualHandler) (*Subscription, error)
}

// A PublisherFunc is a function that serves as a [Publisher].
type PublisherFunc func(ctx context.Context, topic string, events ...*Event) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, topic string, events ...*Event) error {
	return f(ctx, topic, events...)
}

// Options are the settings of a [Bus]. A zero field means its default.
type Options struct {
	// Service names the program. It is the Source of events that have none, so it should be
	// a URI reference, such as "shop" or "https://shop.example/eu". Default: the name of the
	// program's file.
	Service string

	// Instance is a stable name of this process, such as the name of a pod of a StatefulSet.
	// No two processes may have the same Instance at the same time. It has the form of a
	// group's name, see [backend.CheckName]. Default: none.
	//
	// After a crash, a restarted process with the same Instance gets the events that it held
	// at once and in order, when it subscribes to their group. Without an Instance they wait
	// until their leases have expired, and later events of their keys are handled before
	// them. If the earlier process still runs, its subscriptions to the group fail for good
	// with ErrReplaced, and the contexts of their handlers end. New refuses Instance if
	// the backend does not have Limits.Instances.
	Instance string

	// Observer watches the bus. The zero Observer means observer.Slog(nil), which logs
	// failures with slog's default logger.
	Observer observer.Observer

	// Middleware wraps every handler, the first outermost.
	Middleware []Middleware

	// PublishMiddleware wraps Publish and PublishReceipts, the first outermost.
	PublishMiddleware []PublishMiddleware

	// ErrorClasses give names to errors of handlers, for Retry.Rules and for dead letters.
	// The class of an error is the first one that matches it. If none matches, the class is
	// "panic", "timeout", the result of the error's method ErrorType() string, or the Go type
	// of the innermost error. If the handler did not run, the class is the Reason.
	ErrorClasses []ErrorClass

	// Topics are settings of topics, by name. Open declares these topics. A bus of New declares
	// each one when it first publishes in it or subscribes to it.
	Topics map[string]TopicOptions

	// Timeout is the default of SubscribeOptions.Timeout. Default 1 minute; negative: none.
	Timeout time.Duration

	// PublishTimeout bounds each Publish, retries included, in addition to its context.
	// Default 30 s; negative: none.
	PublishTimeout time.Duration

	// OpenTimeout is how long Open waits for a broker that does not answer yet. Open then
	// tries again each second, and tells Observer.Failed of each failure. Default none:
	// Open fails at once.
	OpenTimeout time.Duration

	// DrainTimeout bounds the Shutdown at the end of Run. Default 25 s;
	// negative: none.
	DrainTimeout time.Duration

	// Dedup makes a topic store only one event of an ID while the backend remembers the ID
	// (Limits.OnceWindow). During this time a program may safely repeat a Publish of events
	// whose ID it has set, perhaps to Receipt.ID. With Dedup the bus itself repeats a Publish
	// of unknown outcome. New refuses Dedup if the backend does not remember IDs.
	Dedup bool

	// MaxPayload is the most bytes of a Payload that Publish accepts, at least 1. New refuses a
	// value that is larger than Limits.Payload of the backend without 64 KiB, which are
	// reserved for headers. Raise SubscribeOptions.MaxReceive and MaxBytes with it. Default:
	// the constant MaxPayload, which every backend can store.
	MaxPayload int

	// MaxPending and MaxPendingBytes bound the events of all calls of Publish under way. A
	// call that is larger than a bound is accepted only when no other call is under way.
	// Defaults 10,000 events and 64 MiB.
	MaxPending      int
	MaxPendingBytes int

	// WhenFull says how Publish behaves when MaxPending or MaxPendingBytes is reached.
	// Default WaitWhenFull.
	WhenFull WhenFull
}

// WhenFull says how Publish behaves when Options.MaxPending or Options.MaxPendingBytes is
// reached.
type WhenFull uint8

const (
	// WaitWhenFull makes Publish wait until there is room. Calls get room in the order in
	// which they began.
	WaitWhenFull WhenFull = iota

	// RejectWhenFull makes Publish return ErrBackpressure immediately.
	RejectWhenFull

	// DropNewest drops the events of the new call: Publish returns ErrDropped immediately.
	DropNewest

	// DropOldest drops the events of the calls that have waited longest: these calls return
	// ErrDropped. Only events that are certainly not stored are dropped. If that does not
	// make enough room, the events of the new call are dropped. A dropped event leaves no
	// dead letter. Bus.Dropped counts it, and Observer.Dropped reports it.
	DropOldest
)

var whenFull = map[WhenFull]publish.WhenFull{
	WaitWhenFull: publish.Wait, RejectWhenFull: publish.Reject, DropNewest: publish.DropNewest, DropOldest: publish.DropOldest,
}

// A Bus publishes and subscribes through one backend. Its methods are safe for
// concurrent use. It has no goroutines of its own while there is no subscription and no
// Publish under way.
type Bus struct {
	engine  *engine.Engine
	options Options
	kinds   kinds
	later   *later.Client // scheduled events
	publish Publisher     // the function storeCopies, wrapped by Options.PublishMiddleware; nil if there is none
	down    chan struct{} // closed when a Shutdown has ended
	ended   func()        // closes the channel down; only its first call has an effect
}

var (
	_ Publisher        = (*Bus)(nil)
	_ Subscriber       = (*Bus)(nil)
	_ ManualSubscriber = (*Bus)(nil)
)

// New returns a bus that owns b: Shutdown of the bus closes b. If b is nil or New refuses
// o, the error is a *FieldError, and New does not close b.
func New(b backend.Backend, o Options) (*Bus, error) {
	o = o.Effective()
	if b == nil {
		return nil, &FieldError{Field: "backend", Reason: "is nil"}
	}
	if err := o.check(backend.LimitsOf(b)); err != nil {
		return nil, err
	}
	if err := o.checkPartitions(b); err != nil {
		return nil, err
	}
	bus := &Bus{options: o, down: make(chan struct{})}
	bus.ended = sync.OnceFunc(func() { close(bus.down) })
	if len(o.PublishMiddleware) > 0 {
		var err error
		if bus.publish, err = o.wrapPublisher(PublisherFunc(func(ctx context.Context, topic string, events ...*Event) error {
			return storeCopies(ctx, bus, topic, events)
		})); err != nil {
			return nil, err
		}
	}
	bus.engine = engine.New(b, engine.Options{
		Observer:   o.Observer,
		Instance:   o.Instance,
		Program:    o.Process(),
		Topics:     o.topics(),
		Partitions: o.partitions(),
		Publish: engine.PublishOptions{
			Timeout:         max(o.PublishTimeout, 0),
			MaxPending:      o.MaxPending,
			MaxPendingBytes: o.MaxPendingBytes,
			WhenFull:        whenFull[o.WhenFull],
		},
	})
	bus.later = later.NewClient(b, bus.engine.Publish)
	return bus, nil
}

// wrapPublisher returns p, wrapped by o.PublishMiddleware. A middleware that returns nil is
// an error.
func (o Options) wrapPublisher(p Publisher) (Publisher, error) {
	for i, m := range slices.Backward(o.PublishMiddleware) {
		if p = m(p); p == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.PublishMiddleware[%d]", i), Reason: "has returned nil"}
		}
	}
	return p, nil
}

// wrap returns h, wrapped by o.Middleware, the first outermost. A middleware that returns
// nil is an error.
func (o Options) wrap(h Handler) (Handler, error) {
	for i, m := range slices.Backward(o.Middleware) {
		if h = m(h); h == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.Middleware[%d]", i), Reason: "has returned nil"}
		}
	}
	return h, nil
}

// Run waits until ctx ends or a subscription fails for good. It then calls Shutdown,
// bounded by Options.DrainTimeout, and returns. It also returns after a Shutdown by
// another goroutine, with the error of that Shutdown. The end of ctx is not an error.
func (b *Bus) Run(ctx context.Context) error {
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-b.engine.Failed():
	case <-b.down:
	}
	drain, cancel := drainContext(ctx, b)
	defer cancel()
	return errors.Join(failed, b.Shutdown(drain))
}

// Shutdown drains every subscription, then ends publishing, then closes the backend. A
// drained subscription receives no more events and gives back the events whose handlers
// have not started. It waits for running handlers and settles their events. Handlers may
// publish until they return. When ctx ends Shutdown cancels the handlers with cause
// ErrShutdown and waits one more second. It then returns a *DrainError with the number of
// events that are still held. A later call waits for the first call, at most until its own
// ctx ends. Shutdown would wait for its caller in a handler, so with the context of a running
// handler of the bus it returns ErrInHandler at once.
func (b *Bus) Shutdown(ctx context.Context) error {
	if slices.ContainsFunc(b.engine.Subscriptions(), func(s *engine.Subscription) bool { return s.Running(ctx) }) {
		return ErrInHandler
	}
	defer b.ended()
	return drainError(b.engine.Shutdown(ctx))
}

// Ready returns nil if the backend answers and no subscription has a lasting failure. Such a
// failure is: reads fail, a settlement has failed for longer than a lease, dead letters cannot
// be stored, all handlers are stuck, or the subscription has failed for good. The error names
// the present failures by topic and group, in a stable order. A subscription that is paused,
// limited or drained is no failure. Ready suits a readiness probe.
func (b *Bus) Ready(ctx context.Context) error {
	if err := b.engine.Ready(ctx); err != nil {
		return &Error{Op: "ready", Err: err}
	}
	return nil
}

// Dropped returns how many events Publish has dropped since the start of the bus; see
// Options.WhenFull.
func (b *Bus) Dropped() int64 { return b.engine.Dropped() }

// Backend returns the backend that was given to New, for use with [backend.As].
func (b *Bus) Backend() backend.Backend { return b.engine.Backend() }
