// Package results keeps the results of handlers, so that the program that published an event can
// wait for its result.
//
// A handler calls [Set]. The middleware stores the result before the event is acknowledged, and
// another process asks for it by the topic, group and ID of the event:
//
//	// the service that handles
//	bus, err := eventbus.New(b, eventbus.Options{Middleware: []eventbus.Middleware{results.Middleware(shared, results.Options{})}})
//	…
//	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"},
//		func(ctx context.Context, d *eventbus.Delivery) error {
//			return results.Set(ctx, invoice(d))
//		})
//
//	// the program that publishes
//	receipts, err := bus.PublishReceipts(ctx, "orders", &eventbus.Event{Payload: order})
//	…
//	invoice, err := results.Wait(ctx, shared, "orders", "billing", receipts[0].ID)
//
// Both share a [store.Store], such as redisstore or natsstore. Events without a result cost no call
// to the store.
//
// # Promises
//
// Every acknowledged event has its result in the store, because a run fails, and its event is
// retried, if the result cannot be stored. A failed run stores no result. If an event runs several
// times, the store has the result of the last run that set one and succeeded. It keeps the result
// for Options.TTL.
//
// An event that becomes a dead letter has no result, and [Wait] waits for it until its ctx ends.
// With AckOnReceive the event is acknowledged before its run, so its result comes later, or never.
//
// # Batches and manual acknowledgement
//
// A BatchHandler sets the result of an event through the context of that event:
//
//	results.Set(d.Context(), data)
//
// In a ManualHandler, Set stores the result at once, because the middleware does not see the
// settlement. Call it before Ack, with the handler's context or a child of it. The result stays in
// the store even if you later call Nack.
//
// # Other middleware
//
// Put Middleware after Dedupe in Options.Middleware, so that the result is stored before the event
// is marked as handled. Otherwise an event whose result could not be stored would be discarded when
// it is retried. Put middleware that decides which errors count as success, such as IgnoreErrors,
// after this one.
package results

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/store"
)

// Options are the settings of [Middleware]. A zero field means its default.
type Options struct {
	TTL     time.Duration // how long a result is kept; default 24 hours
	MaxSize int           // the maximum size of a result in bytes; default 64 KiB
	Timeout time.Duration // limits storing one result; default 5 s
}

// ErrNoRun is the error of [Set] if ctx does not belong to a run with [Middleware], or if the run
// has ended.
var ErrNoRun = errors.New("results: the context is not of a run with the middleware of package results")

// Middleware lets each run [Set] a result, and stores it in s after the handler has returned nil.
// If that does not succeed within Options.Timeout, the run fails; the end of the run's context does
// not shorten this time.
//
// A run without a result makes no call to s and costs one allocation. Middleware panics if s is nil
// or a field of o is negative.
func Middleware(s store.Store, o Options) eventbus.Middleware {
	switch {
	case s == nil:
		panic("results: Middleware: the store is nil")
	case o.TTL < 0 || o.MaxSize < 0 || o.Timeout < 0:
		panic("results: Middleware: TTL, MaxSize or Timeout is negative")
	}
	o.TTL = cmp.Or(o.TTL, 24*time.Hour)
	o.MaxSize = cmp.Or(o.MaxSize, 64<<10)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	m := &config{s, o}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			r := &run{Context: ctx, config: m, topic: d.Topic, group: d.Group, id: d.ID, manual: d.Manual}
			if d.Manual {
				return next(r, d) //nolint:contextcheck // r has ctx
			}
			defer r.end()
			if err := next(r, d); err != nil { //nolint:contextcheck // r has ctx
				return err
			}
			if data := r.end(); len(data) > 0 {
				return r.store(context.WithoutCancel(ctx), data)
			}
			return nil
		}
	}
}

// A config is what all runs of one Middleware share.
type config struct {
	s store.Store
	o Options
}

// A run is one run of a handler. It is also the run's context, so that a run without a result costs
// a single allocation.
type run struct {
	context.Context
	*config

	topic, group, id string // the handler may change its Delivery
	manual           bool

	mu    sync.Mutex
	data  []byte
	ended bool
}

// runKey is the key under which Value returns the run itself.
type runKey struct{}

// Value returns the run, or a value of the run's context.
func (r *run) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// end ends the run, so that a later Set fails, and returns its result.
func (r *run) end() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	return r.data
}

func (r *run) store(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	key := keyOf(r.topic, r.group, r.id)
	if err := r.s.Set(ctx, key, data, r.o.TTL); err != nil {
		return fmt.Errorf("results: store %q: %w", key, err)
	}
	return nil
}

// Set makes data the result of the run to which ctx belongs, replacing an earlier one. If the run
// succeeds, the result is stored before the event is acknowledged. Empty data means no result. Set
// does not retain data, and may be called from any goroutine until the handler returns.
//
// ctx is the handler's context or derives from it; for an event of a batch see
// [eventbus.Delivery.Context]. In a ManualHandler, Set stores data at once and returns when it is
// stored; empty data then changes nothing.
//
// The error matches [ErrNoRun] if ctx does not belong to such a run, and [eventbus.ErrTooLarge] if
// data is larger than Options.MaxSize.
func Set(ctx context.Context, data []byte) error {
	r, ok := ctx.Value(runKey{}).(*run)
	switch {
	case !ok:
		return ErrNoRun
	case len(data) > r.o.MaxSize:
		return fmt.Errorf("results: set: %w: the result has %d bytes, more than %d", eventbus.ErrTooLarge, len(data), r.o.MaxSize)
	case r.manual && len(data) > 0:
		return r.store(ctx, data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return ErrNoRun
	}
	r.data = bytes.Clone(data)
	return nil
}

// keyOf returns the key of a result. It is unambiguous, because names of topics and groups contain
// no slash.
func keyOf(topic, group, id string) string { return "result/" + topic + "/" + group + "/" + id }

// Get returns the result of the event id of topic in group, and true. If s has none, it returns
// nil, false and a nil error: the event has not been handled yet, its run set no result, it failed
// for good, or the result has expired.
func Get(ctx context.Context, s store.Store, topic, group, id string) ([]byte, bool, error) {
	data, ok, err := s.Get(ctx, keyOf(topic, group, id))
	if err != nil {
		return nil, false, fmt.Errorf("results: get: %w", err)
	}
	return data, ok, nil
}

// How often Wait polls.
const (
	minPoll = 10 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// Wait is like [Get], but waits until there is a result or ctx ends. It polls the store, at first
// every 10 ms and later every 250 ms, and returns the store's first error. If ctx ends, the error
// wraps the cause of ctx.
func Wait(ctx context.Context, s store.Store, topic, group, id string) ([]byte, error) {
	for poll := minPoll; ; poll = min(poll*3/2, maxPoll) {
		data, ok, err := Get(ctx, s, topic, group, id)
		if ok || err != nil && ctx.Err() == nil {
			return data, err
		}
		if !wait.Sleep(ctx, poll) {
			return nil, fmt.Errorf("results: wait for event %q of %s/%s: %w", id, topic, group, context.Cause(ctx))
		}
	}
}
