package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// A DedupeStore remembers the keys of handled events. The store decides how many keys it
// remembers, and for how long. Its methods must be safe for concurrent use. Keys have at
// most 1,300 bytes, unless DedupeOptions.ID returns longer IDs.
type DedupeStore interface {
	Handled(ctx context.Context, key string) (bool, error) // reports whether key is remembered
	Mark(ctx context.Context, key string) error            // remembers key
}

// DedupeOptions are the settings of [Dedupe]. A zero field means its default.
type DedupeOptions struct {
	// ID returns the identity of an event. Events of one topic and group with the same ID
	// are the same event. An event with the ID "" is always handled. Default: Event.ID.
	ID func(*eventbus.Delivery) string

	// OnError is called if an event was handled but could not be marked.
	OnError OnError
}

const markTimeout = 5 * time.Second

// Dedupe discards an event that its group has handled before: a redelivered event, or
// another event with the same ID. The bus counts and reports the event as discarded, with
// the reason "dropped".
//
// Dedupe marks an ID after the handler has returned nil. It gives DedupeStore.Mark 5
// seconds. After a crash, or an error of Mark, the event may run a second time, but it is
// never lost. Dedupe is no lock. If two members, or two handlers of one member, run events
// of one ID at the same time, both run. If DedupeStore.Handled returns an error, the event
// fails and is retried.
//
// Dedupe neither discards nor marks events of SubscribeManual, because a ManualHandler may
// return nil before its event is handled. Dedupe panics if store is nil.
func Dedupe(store DedupeStore, o DedupeOptions) eventbus.Middleware {
	if store == nil {
		panic("eventbus: Dedupe: the store is nil")
	}
	if o.ID == nil {
		o.ID = func(d *eventbus.Delivery) string { return d.ID }
	}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			id := o.ID(d)
			if id == "" || d.Manual {
				return next(ctx, d)
			}
			key := d.Topic + "/" + d.Group + "/" + id
			handled, err := store.Handled(ctx, key)
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
			if err := store.Mark(mark, key); err != nil {
				o.OnError.tell(ctx, d, fmt.Errorf("eventbus: dedupe: mark %q: %w", key, err))
			}
			return nil
		}
	}
}
