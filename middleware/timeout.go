package middleware

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/seed41896749/eventbus"
)

// Timeout bounds the handling of events by their Type, below what
// SubscribeOptions.Timeout allows to all. The context of the handler ends with
// cause *eventbus.TimeoutError, and an error that the handler then returns is
// wrapped in it; nil is success, however late. A type that is not listed, or
// with zero or less, has no bound here.
//
// It bounds the call of the handler: under SubscribeManual, not the time until
// settlement, and the ctx given to the handler ends when it returns; what goes on
// after that uses ManualDelivery.Context.
func Timeout(byType map[string]time.Duration) eventbus.Middleware {
	byType = maps.Clone(byType)
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			after := byType[d.Type]
			if after <= 0 {
				return next(ctx, d)
			}
			cause := &eventbus.TimeoutError{After: after}
			ctx, cancel := context.WithTimeoutCause(ctx, after, cause)
			defer cancel()
			err := next(ctx, d)
			if err != nil && context.Cause(ctx) == error(cause) { //nolint:errorlint // this run's, not one like it
				return fmt.Errorf("%w: %w", cause, err)
			}
			return err
		}
	}
}
