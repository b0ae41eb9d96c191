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

// Counts are the numbers of occurrences in this process, in all calls of Relay.
type Counts struct {
	Published int64 // events whose Publish has succeeded, each time
	Refused   int64 // events that were set aside
	Failures  int64 // calls of Options.OnFailure, also those that panicked
}

type counts struct{ published, refused, failures atomic.Int64 }

// Counts returns the present numbers, for metrics.
func (o *Outbox) Counts() Counts {
	return Counts{o.counts.published.Load(), o.counts.refused.Load(), o.counts.failures.Load()}
}

// tell reports f. A panic of the callback has no effect, because there is no other place to
// report it to.
func (o *Outbox) tell(f Failure) {
	defer func() { _ = recover() }()
	o.counts.failures.Add(1)
	if o.options.OnFailure != nil {
		o.options.OnFailure(f)
		return
	}
	o.log(slog.LevelWarn, "relay failed", "op", f.Op, "topic", f.Topic, "events", f.Events, "next_attempt_in", f.Next, "error", f.Err.Error())
}

// tellRefused reports r.
func (o *Outbox) tellRefused(r Refused) {
	o.counts.refused.Add(1)
	defer o.recovered("OnRefused")
	if o.options.OnRefused != nil {
		o.options.OnRefused(r)
		return
	}
	o.log(slog.LevelError, "event refused", "topic", r.Topic, "id", r.Event.ID, "number", r.Number, "reason", r.Reason)
}

// tellActive reports that this relay is the active one, or is so no longer.
func (o *Outbox) tellActive(active bool) {
	defer o.recovered("OnActive")
	if o.options.OnActive != nil {
		o.options.OnActive(active)
		return
	}
	text := "relay stands by"
	if active {
		text = "relay is active"
	}
	o.log(slog.LevelInfo, text)
}

// recovered is deferred around a callback. It reports a panic of the callback.
func (o *Outbox) recovered(where string) {
	if v := recover(); v != nil {
		o.tell(Failure{Op: "observe", Err: &observer.PanicError{Where: where, Value: v, Stack: debug.Stack()}})
	}
}

func (o *Outbox) log(level slog.Level, text string, pairs ...any) {
	slog.Default().Log(context.Background(), level, "outbox: "+text, append(pairs, "table", o.options.Table)...) //nolint:forbidigo // callbacks have no context
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
