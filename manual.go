package eventbus

import (
	"context"

	"github.com/seed41896749/eventbus/internal/engine"
)

// A ManualHandler takes one event that the program settles later, from any
// goroutine. Nil: the event is still held. An error is as Nack.
type ManualHandler func(ctx context.Context, d *ManualDelivery) error

// A ManualDelivery is held until it is settled by Ack or Nack, or until
// SubscribeOptions.Timeout has passed since its handler was called: then its
// context ends and it counts as failed. Its lease is kept, it has a place among
// MaxInFlight, events of its key wait, and a drain waits for it. Its methods are
// safe for concurrent use.
type ManualDelivery struct {
	*Delivery
	hold *engine.Hold
}

// Context is the context given to the handler. It ends with settlement.
func (d *ManualDelivery) Context() context.Context { return d.hold.Context() }

// Ack settles the event as handled and returns when the broker has confirmed.
// A second settlement returns ErrSettled; one after the timeout, or after the
// lease was lost, ErrLeaseLost. If ctx ends first the outcome is unknown, and
// the bus goes on trying.
func (d *ManualDelivery) Ack(ctx context.Context) error { return d.hold.Ack(ctx) }

// Nack settles the event as failed: cause, and SubscribeOptions.Retry, say what
// follows, as for a [Handler]. It returns when that is done, with errors as Ack.
func (d *ManualDelivery) Nack(ctx context.Context, cause error) error { return d.hold.Nack(ctx, cause) }

// SubscribeManual is Subscribe for a program that settles events itself.
// Middleware of the bus wraps the call of h. SubscribeOptions.Ack must not be
// set.
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o SubscribeOptions, h ManualHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	if o.Ack != AckOnSuccess {
		return nil, &FieldError{Field: "SubscribeOptions.Ack", Reason: "is set, but SubscribeManual leaves settling to the program"}
	}
	return b.subscribe(ctx, topic, o, engine.Manual, func(ctx context.Context, d *Delivery) error {
		m, _ := ctx.Value(manualKey{}).(*engine.Hold)
		return h(ctx, &ManualDelivery{Delivery: d, hold: m})
	})
}

// manualKey carries the Hold past the middleware, which knows only Deliveries.
type manualKey struct{}
