package middleware

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// Timeout bounds the handling of events by their Type, within SubscribeOptions.Timeout.
// When the time is over, the handler's context ends with the cause *observer.TimeoutError.
// Timeout then wraps the cause and the handler's error in one error. A handler that returns
// nil has succeeded, however late. If byType has no positive entry for a type, the type has
// no bound.
//
// Timeout bounds the call of the handler. With SubscribeManual it does not bound the time
// until settlement: the handler's ctx ends when the handler returns, and later work uses
// ManualDelivery.Context.
func Timeout(byType map[string]time.Duration) eventbus.Middleware {
	byType = maps.Clone(byType)
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			after := byType[d.Type]
			if after <= 0 {
				return next(ctx, d)
			}
			cause := &observer.TimeoutError{After: after}
			ctx, cancel := context.WithTimeoutCause(ctx, after, cause)
			defer cancel()
			err := next(ctx, d)
			if err != nil && context.Cause(ctx) == error(cause) { //nolint:errorlint // identity: the cause of this run
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
	}
}
