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
	// ID returns the identity of an event. Events of one topic and group with the same ID
	// are the same event. An event with the ID "" is always handled. Default: Event.ID.
	ID func(*eventbus.Delivery) string

	// Age is how long a handled event is remembered. Default 24 hours.
	Age time.Duration

	// OnError is called if an event was handled but could not be marked.
	OnError OnError
}

const markTimeout = 5 * time.Second

// Dedupe discards an event that its group has handled before: a redelivered event, or
// another event with the same ID. The bus counts and reports the event as discarded, with
// the reason "dropped".
//
// Dedupe marks an ID in seen after the handler has returned nil. It gives the store 5
// seconds. After a crash, or an error of the store, the event may run a second time, but it
// is never lost. Dedupe is no lock. If two members, or two handlers of one member, run events
// of one ID at the same time, both run. If an ID cannot be looked up, the event fails and is
// retried. The keys in seen begin with "dedupe/", so package results may use the same store.
//
// Dedupe neither discards nor marks events of SubscribeManual, because a ManualHandler may
// return nil before its event is handled. Dedupe panics if seen is nil or Age is negative.
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
				o.OnError.tell(ctx, d, fmt.Errorf("eventbus: dedupe: mark %q: %w", key, err))
			}
			return nil
		}
	}
}
