package middleware

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/store"
)

// DedupeOptions are the settings of [Dedupe]. A zero field means its default.
type DedupeOptions struct {
	// ID returns the identity of an event: events of one topic and group with the same ID count as
	// the same event. Events with an empty ID are always handled. Default: Event.ID.
	ID func(*eventbus.Delivery) string

	// Age is how long a handled event is remembered. Default 24 hours.
	Age time.Duration

	// OnError is called if an event was handled but could not be marked as handled.
	OnError OnError
}

const markTimeout = 5 * time.Second

// Dedupe discards an event that its group has already handled: a redelivery, or another event with
// the same ID. The bus counts and reports it as discarded, with the reason "dropped".
//
// Dedupe marks an ID in seen after the handler has returned nil, and gives the store 5 seconds for
// that. After a crash or a store error the event may therefore run again, but it is never lost. If
// an ID cannot be looked up, the event fails and is retried. Dedupe is not a lock: if two members,
// or two handlers of one member, run events with the same ID at the same time, both run. The keys
// in seen begin with "dedupe/", so package results can share the store.
//
// Dedupe leaves events of SubscribeManual alone, because a ManualHandler may return nil before its
// event is handled. It panics if seen is nil or Age is negative.
func Dedupe(seen store.Store, o DedupeOptions) eventbus.Middleware {
	switch {
	case seen == nil:
		panic("eventbus: Dedupe: the store is nil")
	case o.Age < 0:
		panic("eventbus: Dedupe: Age is negative")
	}
	o.Age = cmp.Or(o.Age, 24*time.Hour)
	if o.ID == nil {
		o.ID = func(d *eventbus.Delivery) string { return d.ID }
	}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			id := o.ID(d)
			if id == "" || d.Manual {
				return next(ctx, d)
			}
			key := "dedupe/" + d.Topic + "/" + d.Group + "/" + id
			_, handled, err := seen.Get(ctx, key)
			if err != nil {
				return fmt.Errorf("eventbus: dedupe: look up %q: %w", key, err)
			}
			if handled {
				return &observer.NotRunError{Err: eventbus.Drop("handled before")}
			}
			if err := next(ctx, d); err != nil {
				return err
			}
			// The handler has succeeded, so the event is marked even if ctx has ended.
			mark, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
			defer cancel()
			if err := seen.Set(mark, key, nil, o.Age); err != nil {
				o.OnError.report(ctx, d, fmt.Errorf("eventbus: dedupe: mark %q: %w", key, err))
			}
			return nil
		}
	}
}
