package middleware

import (
	"context"
	"log/slog"

	"github.com/seed41896749/eventbus"
)

// An OnError is called with an error that does not fail the event d, for example if [Audit]
// cannot store a record. It is called on the goroutines of handlers, so several calls may
// run concurrently. A nil OnError logs a warning with slog.Default().
type OnError func(ctx context.Context, d *eventbus.Delivery, err error)

func (f OnError) tell(ctx context.Context, d *eventbus.Delivery, err error) {
	if f != nil {
		f(ctx, d, err)
		return
	}
	slog.Default().WarnContext(ctx, "eventbus: middleware failed", "topic", d.Topic, "group", d.Group,
		"id", d.ID, "attempt", d.Attempt, "error", err.Error())
}
