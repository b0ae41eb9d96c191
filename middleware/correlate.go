package middleware

import (
	"context"
	"slices"

	"github.com/seed41896749/eventbus"
)

// The headers that [Correlate] sets.
const (
	CorrelationID = "correlation-id" // the ID of the event with which it all began
	CausationID   = "causation-id"   // the ID of the event whose handler published this one
)

// Correlate returns two wrappers, for Options.Middleware and
// Options.PublishMiddleware of one bus, or of the two buses that a program
// forwards between. An event published with the context of a handler then says
// where it comes from: its header [CausationID] is the ID of the event being
// handled, its header [CorrelationID] is that event's own, or its ID if it has
// none.
//
// A header that the program has set stays. Where one is added, the Headers of the
// event become a new slice, which stays with the event, so that publishing it
// again says the same; the slice that was there is not written to, and may be
// shared by many events.
func Correlate() (eventbus.Middleware, eventbus.PublishMiddleware) {
	return rememberOrigin, stampOrigin
}

// An origin is what an event says about those that it leads to.
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
	if e == nil {
		return // Publish says so
	}
	for _, h := range [...]eventbus.Header{{Name: CorrelationID, Value: o.correlation}, {Name: CausationID, Value: o.causation}} {
		if _, set := e.Headers.Lookup(h.Name); !set && h.Value != "" {
			e.Headers = append(slices.Clip(e.Headers), h)
		}
	}
}
