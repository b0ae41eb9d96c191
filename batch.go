package eventbus

import (
	"context"
	"fmt"
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
//   - Timeout bounds a call of h. On a backend that cannot extend leases, MaxWait plus
//     Timeout must be less than Lease.
//   - MaxInFlight must be at least Concurrency times MaxSize. Its default is the greater
//     of that product and 1,024. A limiter.MaxInFlight that several subscriptions share
//     must be greater than the sum of their products, see SubscribeOptions.Limiter.
//   - MaxRedelivered counts events, and must be less than Concurrency times MaxSize.
//   - With OrderByKey a batch has at most one event of each key, because an event runs only
//     after the event before it has succeeded. So batches stay small if there are few keys.
//     With Unordered a batch may have several events of a key. SubscribeBatch refuses
//     OrderTotal.
//
// The events of a batch have no particular order. Options.Middleware wraps the handling of
// each single event: the middlewares of all events of a batch are called one inside the
// other, and h innermost. With AckOnReceive the events of a batch are acknowledged before
// the call. A drain gives back the events whose call has not begun.
func (b *Bus) SubscribeBatch(ctx context.Context, topic string, o SubscribeOptions, batch Batch, h BatchHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	mode, err := o.Ack.mode()
	if err != nil {
		return nil, err
	}
	if o, err = batch.Options(o); err != nil {
		return nil, err
	}
	batch, _ = batch.Effective() // Options has checked it
	return b.subscribe(ctx, member{topic: topic, o: o, mode: mode, batch: batch, calls: h})
}

// Options returns o with the defaults that batches as b change. If [Bus.SubscribeBatch]
// refuses o with b, Options returns the same error. It lets a program check options before
// it subscribes.
func (b Batch) Options(o SubscribeOptions) (SubscribeOptions, error) {
	b, err := b.Effective()
	if err != nil {
		return o, err
	}
	setDefault(&o.Concurrency, 1)
	most := max(o.Concurrency, o.MaxConcurrency)
	events := most * b.MaxSize
	switch {
	case o.Order == OrderTotal:
		return o, &FieldError{Field: "SubscribeOptions.Order", Reason: "is OrderTotal, with which no batch has two events"}
	case events/b.MaxSize != most:
		return o, &FieldError{Field: "Batch.MaxSize", Reason: "is too large"}
	case o.MaxInFlight > 0 && o.MaxInFlight < events:
		return o, &FieldError{
			Field:  "SubscribeOptions.MaxInFlight",
			Reason: fmt.Sprintf("is %d, less than Concurrency times Batch.MaxSize, %d", o.MaxInFlight, events),
		}
	}
	setDefault(&o.MaxInFlight, max(1024, events))
	o.batch = b.MaxSize
	return o, nil
}
