package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
)

// Logging logs one line per run of a handler: at level Debug if the handler returned nil, and at
// Warn after an error, a panic or runtime.Goexit. Events that ended with an [observer.NotRunError]
// did not run and are not logged. Payloads and headers are never logged. If logger is nil, each
// line goes to the current slog.Default().
func Logging(logger *slog.Logger) eventbus.Middleware {
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			entry := entry{logger: logger, delivery: *d, start: time.Now()}
			// The panic must pass through unrecovered, or its stack would be lost.
			defer entry.write(ctx)
			entry.err = next(ctx, d)
			entry.returned = true
			return entry.err
		}
	}
}

// An entry collects what the log line of a run needs.
type entry struct {
	logger   *slog.Logger
	delivery eventbus.Delivery // a copy, because the handler may change its Delivery
	start    time.Time
	returned bool
	err      error
}

func (e *entry) write(ctx context.Context) {
	if isNotRun(e.err) {
		return
	}
	level, message := slog.LevelDebug, "eventbus: event handled"
	failed, failure := true, "the handler panicked or ended its goroutine"
	if e.returned {
		if failed = e.err != nil; failed {
			failure = e.err.Error()
		}
	}
	if failed {
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
	if failed {
		attrs = append(attrs, slog.String("error", failure))
	}
	logger.LogAttrs(ctx, level, message, attrs...)
}
