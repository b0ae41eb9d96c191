package middleware

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// Timeout limits each run of a handler by the entry of byType for the event's Type, within
// SubscribeOptions.Timeout. Types without a positive entry have no such limit. When the time is
// over, the handler's context ends with the cause *observer.TimeoutError; if the handler then
// returns an error, Timeout returns an error that wraps both. A handler that returns nil has
// succeeded, however late.
//
// With SubscribeManual, Timeout limits the call of the handler, not the time until settlement. The
// handler's ctx ends when the handler returns, so later work should use ManualDelivery.Context.
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
