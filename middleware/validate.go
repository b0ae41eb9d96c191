package middleware

import (
	"context"
	"fmt"
	"maps"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// A Check returns nil for a valid event, or an error that says why it is invalid. It must not
// change the event, and is called concurrently.
type Check func(*eventbus.Event) error

// Validate checks each event before its handler runs, with the entry of byType for the event's
// Type, or with otherwise if there is none. If otherwise is nil, such events are accepted. If the
// check returns an error, the handler does not run, and the event fails permanently (see
// [eventbus.Permanent]), so it goes to the dead-letter topic.
//
// Validate copies byType, and panics if one of its checks is nil.
func Validate(byType map[string]Check, otherwise Check) eventbus.Middleware {
	byType = maps.Clone(byType)
	for name, check := range byType {
		if check == nil {
			panic(fmt.Sprintf("eventbus: Validate: the check of %q is nil", name))
		}
	}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			check, ok := byType[d.Type]
			if !ok {
				check = otherwise
			}
			if check != nil {
				if err := check(&d.Event); err != nil {
					err = fmt.Errorf("eventbus: invalid event of type %q: %w", d.Type, err)
					return eventbus.Permanent(&observer.NotRunError{Err: err})
				}
			}
			return next(ctx, d)
		}
	}
}
