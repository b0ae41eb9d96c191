package eventbus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// A BatchHandler handles several events in one call. The result at index i is for the event
// ds[i] and means the same as the result of a [Handler]. So the bus settles each event by
// the event's own result. A nil slice means that all events are handled. A panic, or a
// slice of any other length than ds, fails every event of the call.
//
// An event on its last attempt is handled in a batch of its own, so that other events
// cannot fail it for good. An attempt counts as the last one if it reaches
// Retry.MaxAttempts, or the MaxAttempts of any of Retry.Rules. A MaxAttempts of 1 has no
// such effect: an event with a single attempt shares a batch.
//
// ctx carries the values of the context given to SubscribeBatch. It ends when the handler
// has returned, or when SubscribeOptions.Timeout has passed since the call (cause
// *observer.TimeoutError). It ends too when the contexts of all events of the batch have
// ended: their leases are lost, or the context of a Drain or Shutdown has ended. The result
// of an event whose lease is lost changes nothing.
type BatchHandler func(ctx context.Context, ds []*Delivery) []error

// A BatchSubscriber subscribes handlers of batches to topics.
type BatchSubscriber interface {
	// SubscribeBatch makes h a member of the group o.Group of topic.
	SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error)
}

var _ BatchSubscriber = (*Bus)(nil)

// A Batch says when a batch is full. A batch that is not full is handled when MaxWait has
// passed since its first event. A zero field means its default.
type Batch struct {
	// MaxSize is the most events of a batch. Default 100.
	MaxSize int

	// MaxBytes bounds the total size of the payloads of a batch, in bytes. A larger event
	// has a batch of its own. Default: no bound.
	MaxBytes int64

	// MaxWait is how long the first event of a batch waits for further events. If as many
	// calls of the handler run then as SubscribeOptions.Concurrency allows, the batch waits
	// until one returns, and fills meanwhile. Default 10 ms; negative: no wait.
	MaxWait time.Duration
}

// Effective returns b with the default in each zero field, as SubscribeBatch uses it. If
// SubscribeBatch refuses b, Effective returns the same *FieldError.
func (b Batch) Effective() (Batch, error) {
	setDefault(&b.MaxSize, 100)
	setDefault(&b.MaxWait, 10*time.Millisecond)
	b.MaxWait = max(b.MaxWait, -1)
	switch {
	case b.MaxSize < 0:
		return b, &FieldError{Field: "Batch.MaxSize", Reason: "is negative"}
	case b.MaxBytes < 0:
		return b, &FieldError{Field: "Batch.MaxBytes", Reason: "is negative"}
	}
	return b, nil
}

// SubscribeBatch is like Subscribe for a handler that takes several events in one call.
// Options have the same meaning for each event, with these differences:
//
//   - Concurrency is the most calls of h that run at the same time. Meanwhile the next
//     batches fill.
//   - Timeout bounds a call of h. An event that waits longer than MaxWait plus twice
//     Timeout for its call is given back as by [Snooze]. With AckOnReceive it is
//     discarded. This happens only if calls are slow and the waiting events do not fit in
//     one batch, see Batch.MaxBytes and [BatchHandler]. On a backend that cannot extend
//     leases, MaxWait plus three times Timeout must be less than Lease.
//   - MaxInFlight must be at least Concurrency times MaxSize. Its default is the greater
//     of that product and 1,024. A limiter.MaxInFlight that several subscriptions share
//     must be greater than the sum of their products, see SubscribeOptions.Limiter.
//   - With OrderByKey a batch has at most one event of each key, because an event runs only
//     after the event before it has succeeded. So batches stay small if there are few keys.
//     With Unordered a batch may have several events of a key. SubscribeBatch refuses
//     OrderTotal.
//
// The events of a batch have no particular order. Options.Middleware wraps the handling of
// each single event. So the time that a middleware measures includes the wait for the
// batch. With AckOnReceive an event is acknowledged before it joins a batch. A drain does
// not wait for MaxWait: the events that have joined a batch are handled immediately.
func (b *Bus) SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	mode, err := o.Ack.mode()
	if err != nil {
		return nil, err
	}
	if batch, err = batch.Effective(); err != nil {
		return nil, err
	}
	setDefault(&o.Concurrency, 1)
	setDefault(&o.Timeout, b.options.Timeout)
	each, err := batch.PerEvent(o)
	if err != nil {
		return nil, err
	}
	c := newCollector(context.WithoutCancel(ctx), o, batch, h)
	s, err := b.subscribe(ctx, topic, each, mode, c.handle)
	if f, ok := errors.AsType[*FieldError](err); ok && f.Field == "SubscribeOptions.Timeout" {
		f.Reason = fmt.Sprintf("is %v; for batches three times as much, and MaxWait, %v, %s", o.Timeout, batch.MaxWait, f.Reason)
	}
	if err != nil {
		return nil, err
	}
	s.s.OnDrain(c.drain)
	return s, nil
}

// PerEvent returns the options with which [Bus.SubscribeBatch], given o and b, receives
// single events. Concurrency becomes o.Concurrency times MaxSize. Timeout becomes MaxWait
// plus three times o.Timeout; a zero o.Timeout counts as none. PerEvent lets a program
// check options before it subscribes.
func (b Batch) PerEvent(o SubscribeOptions) (SubscribeOptions, error) {
	b, err := b.Effective()
	if err != nil {
		return o, err
	}
	setDefault(&o.Concurrency, 1)
	handlers := o.Concurrency * b.MaxSize
	switch {
	case o.Order == OrderTotal:
		return o, &FieldError{Field: "SubscribeOptions.Order", Reason: "is OrderTotal, with which no batch has two events"}
	case handlers/b.MaxSize != o.Concurrency:
		return o, &FieldError{Field: "Batch.MaxSize", Reason: "is too large"}
	case o.MaxInFlight > 0 && o.MaxInFlight < handlers:
		return o, &FieldError{
			Field:  "SubscribeOptions.MaxInFlight",
			Reason: fmt.Sprintf("is %d, less than Concurrency times Batch.MaxSize, %d", o.MaxInFlight, handlers),
		}
	}
	o.Concurrency = handlers
	_, o.Timeout = b.bounds(o.Timeout)
	return o, nil
}

// bounds returns the most time that an event waits for its call to begin, and the most time
// until that call has ended. timeout is the timeout of a call. Negative: no bound.
func (b Batch) bounds(timeout time.Duration) (begin, end time.Duration) {
	wait := max(b.MaxWait, 0)
	if timeout <= 0 || timeout > (math.MaxInt64-wait)/3 {
		return -1, -1
	}
	return wait + 2*timeout, wait + 3*timeout
}
