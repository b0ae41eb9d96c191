package badbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus"
)

// serving has the saboteurs that break promises about counts and services.
var serving = []Saboteur{
	{
		Name: "bus-hides-panics", Breaks: "a handler that panics has failed, as others fail",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("something was wrong: %v", v)
					}
				}()
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-snoozes-failures", Breaks: "a failed event comes again, and nothing has failed",
		handler: wrapped(func(error) error { return eventbus.Snooze(0) }),
	},
	{
		Name: "bus-abandons-handlers", Breaks: "a handler ends with its context, whether it has returned or not",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				result := make(chan error, 1)
				go func() {
					defer func() {
						if v := recover(); v != nil {
							result <- fmt.Errorf("something was wrong: %v", v)
						}
					}()
					result <- next(ctx, d)
				}()
				select {
				case err := <-result:
					return err
				case <-ctx.Done():
					return errors.New("its time is over")
				}
			}
		},
	},
	{Name: "bus-declares-nothing", Breaks: "a group begins with its first member"},
	{Name: "bus-keeps-newcomers-waiting", Breaks: "a bus that runs takes no further group"},
}
