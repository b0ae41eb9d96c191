package eventbus

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/internal/engine"
)

// A ManualHandler takes one event that the program settles later, from any goroutine. If
// the handler returns nil, the event stays in flight. If it returns an error, the event is
// settled as by [ManualDelivery.Nack].
type ManualHandler func(ctx context.Context, d *ManualDelivery) error

// A ManualDelivery is an event in flight until the program settles it by Ack or Nack.
// While the event is in flight the bus extends its lease, and counts it for MaxInFlight.
// Later events of its key wait, and so does a drain. SubscribeOptions.Timeout counts from
// the call of the handler. If the event is not settled by then, its context ends and the
// event counts as failed. The methods are safe for concurrent use.
type ManualDelivery struct {
	*Delivery
	run *engine.Run
}

// Context returns the context of the event, which ends when the event is settled. It lacks
// the values that a middleware has added to the context given to the handler.
func (d *ManualDelivery) Context() context.Context { return d.run.Context() }

// Ack settles the event as handled and returns when the broker has confirmed. A second
// settlement returns ErrSettled. A settlement after the timeout, or after the lease was
// lost, returns ErrLeaseLost. If ctx ends first, the error matches ErrUnknownOutcome, and
// the bus goes on trying.
func (d *ManualDelivery) Ack(ctx context.Context) error { return d.run.Ack(ctx) }

// Nack settles the event as failed, as if a [Handler] had returned cause. A nil cause is a
// failure too. Nack returns when the event is given back, dead-lettered or discarded. It
// returns the same errors as Ack.
func (d *ManualDelivery) Nack(ctx context.Context, cause error) error { return d.run.Nack(ctx, cause) }

// SubscribeManual is like Subscribe for a program that settles events itself.
// Options.Middleware wraps the call of h. A middleware may replace the context, and may pass
// on a copy of the Delivery; if it passes on a new one, the event fails without a call of h.
// SubscribeOptions.Ack must be AckOnSuccess.
func (b *Bus) SubscribeManual(ctx context.Context, topic string, o SubscribeOptions, h ManualHandler) (*Subscription, error) {
	if h == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	if o.Ack != AckOnSuccess {
		return nil, &FieldError{Field: "SubscribeOptions.Ack", Reason: "is set, but SubscribeManual leaves settling to the program"}
	}
	return b.subscribe(ctx, member{topic: topic, o: o, mode: engine.Manual, h: func(ctx context.Context, d *Delivery) error {
		if d.run == nil {
			return errNewDelivery
		}
		return h(ctx, &ManualDelivery{Delivery: d, run: d.run})
	}})
}

// errNewDelivery fails an event whose ManualHandler could not settle it.
var errNewDelivery = errors.New("eventbus: a middleware passed on a Delivery of its own; a ManualHandler needs the Delivery of the bus, or a copy of it")
