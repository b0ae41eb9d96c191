package middleware

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
)

// A DedupeStore remembers the events that were handled. The store decides for how long, and
// how many. Its methods are safe for concurrent use. Its keys have at most 1,300 bytes.
type DedupeStore interface {
	Handled(ctx context.Context, key string) (bool, error) // reports whether key was marked
	Mark(ctx context.Context, key string) error
}

// DedupeOptions are the settings of [Dedupe]. A zero field means its default.
type DedupeOptions struct {
	// ID names an event. Events of one topic and group with the same ID are the same
	// event. An event with the ID "" is always handled. Default: Event.ID.
	ID func(*eventbus.Delivery) string

	// OnError is called if an event was handled but could not be marked.
	OnError OnError
}

const markTimeout = 5 * time.Second

// Dedupe discards an event that its group has handled before: a redelivered event, and a
// second event with the same ID. The bus counts and reports it as discarded, with the
// reason "dropped".
//
// An ID is marked after the handler has returned nil, within 5 seconds. So a crash, or an error of Mark,
// leads to a second run and never to a lost event. Dedupe is no lock. If two members, or
// two handlers of one member, run events of one ID at the same time, both run. If
// DedupeStore.Handled returns an error, the event fails and is retried.
//
// Dedupe passes on the events of SubscribeManual, because a ManualHandler that has
// returned nil need not have handled its event. Dedupe panics if store is nil.
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
				return eventbus.Drop("handled before")
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
