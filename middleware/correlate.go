package middleware

import (
	"context"

	"github.com/seed41896749/eventbus"
)

// The headers that [Correlate] sets.
const (
	CorrelationID = "correlation-id" // the ID of the first event in the chain of causes
	CausationID   = "causation-id"   // the ID of the event whose handler published this one
)

// Correlate returns two wrappers for Options.Middleware and Options.PublishMiddleware of one bus.
// Events that you publish with the context of a handler then name the handled event as their
// origin: [CausationID] is its ID, and [CorrelationID] is copied from it, or is its ID if it has
// none. If you forward events to another bus, use the second wrapper there.
//
// Correlate keeps headers that you have set, and leaves out any that would exceed MaxHeaders or
// MaxHeaderBytes.
func Correlate() (eventbus.Middleware, eventbus.PublishMiddleware) {
	return rememberOrigin, stampOrigin
}

// An origin holds the headers for the events that a handler publishes.
type origin struct{ correlation, causation string }

type originKey struct{}

func rememberOrigin(next eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		o := origin{correlation: d.Headers.Get(CorrelationID), causation: d.ID}
		if o.correlation == "" {
			o.correlation = d.ID
		}
		return next(context.WithValue(ctx, originKey{}, o), d)
	}
}

func stampOrigin(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if o, ok := ctx.Value(originKey{}).(origin); ok {
			for _, e := range events {
				o.stamp(e)
			}
		}
		return next.Publish(ctx, topic, events...)
	})
}

func (o origin) stamp(e *eventbus.Event) {
	for _, h := range [...]eventbus.Header{{Name: CorrelationID, Value: o.correlation}, {Name: CausationID, Value: o.causation}} {
		if _, set := e.Headers.Lookup(h.Name); set || h.Value == "" {
			continue
		}
		with := append(e.Headers, h)
		if len(with) <= eventbus.MaxHeaders && with.Size() <= eventbus.MaxHeaderBytes {
			e.Headers = with
		}
	}
}
