package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
)

// Logging writes one record for each run of a handler: with Debug where it
// returned nil, with Warn where it returned an error, panicked or ended its
// goroutine. Payloads and headers are not logged. A nil logger is slog.Default(),
// looked up each time.
func Logging(logger *slog.Logger) eventbus.Middleware {
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			entry := entry{logger: logger, delivery: *d, start: time.Now()}
			// A panic must pass through as it is, or its stack would be ours.
			defer entry.write(ctx)
			entry.err = next(ctx, d)
			entry.returned = true
			return entry.err
		}
	}
}

// An entry is what is known about one run.
type entry struct {
	logger   *slog.Logger
	delivery eventbus.Delivery // as it came: it is the handler's to change
	start    time.Time
	returned bool
	err      error
}

func (e *entry) write(ctx context.Context) {
	level, message := slog.LevelDebug, "eventbus: event handled"
	failure := ""
	switch {
	case !e.returned:
		failure = "the handler panicked or ended its goroutine"
	case e.err != nil:
		failure = e.err.Error()
	}
	if failure != "" {
		level, message = slog.LevelWarn, "eventbus: event not handled"
	}
	logger := e.logger
	if logger == nil {
		logger = slog.Default()
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	d := &e.delivery
	attrs := []slog.Attr{
		slog.String("topic", d.Topic), slog.String("group", d.Group), slog.String("type", d.Type),
		slog.String("id", d.ID), slog.Int("attempt", d.Attempt), slog.Duration("duration", time.Since(e.start)),
	}
	if failure != "" {
		attrs = append(attrs, slog.String("error", failure))
	}
	logger.LogAttrs(ctx, level, message, attrs...)
}
