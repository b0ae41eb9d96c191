package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// A Failure is a failed call of a relay.
type Failure struct {
	Op     string        // "lease", "read", "publish", "delete", "refuse", or "observe" for a panic of a callback
	Topic  string        // of a publish
	Events int           // how many events were not published
	Next   time.Duration // the time until the relay tries again
	Err    error
}

func (f Failure) Error() string {
	if f.Topic != "" {
		return fmt.Sprintf("outbox: %s %s: %v", f.Op, f.Topic, f.Err)
	}
	return fmt.Sprintf("outbox: %s: %v", f.Op, f.Err)
}

// Unwrap returns Err.
func (f Failure) Unwrap() error { return f.Err }

// Counts are the totals over all calls of Relay in this process.
type Counts struct {
	Published int64 // successful calls of Publish, per event
	Refused   int64 // events that were set aside
	Failures  int64 // calls of Options.OnFailure
}

// A reporter calls the callbacks of an outbox, and counts.
type reporter struct {
	options *Options

	published, refused, failures atomic.Int64
}

// Counts returns the current totals, for metrics.
func (o *Outbox) Counts() Counts {
	return Counts{o.report.published.Load(), o.report.refused.Load(), o.report.failures.Load()}
}

// failed reports f. If the callback panics, the panic is dropped, because there is nowhere else to
// report it to.
func (r *reporter) failed(f Failure) {
	defer func() { _ = recover() }()
	r.failures.Add(1)
	if r.options.OnFailure != nil {
		r.options.OnFailure(f)
		return
	}
	slog.Default().Warn("outbox: relay failed", "table", r.options.Table, "op", f.Op, "topic", f.Topic, "events", f.Events,
		"next_attempt_in", f.Next, "error", f.Err.Error())
}

// setAside reports e.
func (r *reporter) setAside(e Refused) {
	r.refused.Add(1)
	defer r.recovered("OnRefused")
	if r.options.OnRefused != nil {
		r.options.OnRefused(e)
		return
	}
	slog.Default().Error("outbox: event refused", "table", r.options.Table, "topic", e.Topic, "id", e.Event.ID, "number", e.Number, "reason", e.Reason)
}

// active reports that a relay has become the active one, or no longer is.
func (r *reporter) active(is bool) {
	defer r.recovered("OnActive")
	switch {
	case r.options.OnActive != nil:
		r.options.OnActive(is)
	case is:
		slog.Default().Info("outbox: relay is active", "table", r.options.Table)
	default:
		slog.Default().Info("outbox: relay is not active", "table", r.options.Table)
	}
}

// recovered is deferred around a callback, and reports its panic.
func (r *reporter) recovered(where string) {
	if v := recover(); v != nil {
		r.failed(Failure{Op: "observe", Err: &observer.PanicError{Where: where, Value: v, Stack: debug.Stack()}})
	}
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
