package middleware

import (
	"context"
	"fmt"
	"maps"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// A Check returns nil for a valid event, or an error that says why the event is invalid. It
// is called from several goroutines. It must not change the event.
type Check func(*eventbus.Event) error

// Validate checks each event before its handler runs. The check is the entry of byType for
// the event's Type. The parameter otherwise checks events without an entry; if it is nil,
// they are accepted. If a check returns an error, the handler does not run. The event fails
// with this error as [eventbus.Permanent], so it goes to the dead-letter topic.
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
