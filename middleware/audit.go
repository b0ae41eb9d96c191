package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// AuditType is the Type of the events that [Audit] publishes.
const AuditType = "eventbus.audit"

// An AuditRecord describes one run of a handler. [Audit] publishes it as JSON.
type AuditRecord struct {
	Topic   string        `json:"topic"`
	Group   string        `json:"group"`
	ID      string        `json:"id"` // the ID of the event
	Type    string        `json:"type,omitempty"`
	Attempt int           `json:"attempt"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took_ns"` // in JSON: nanoseconds
	Outcome AuditOutcome  `json:"outcome"`
	Error   string        `json:"error,omitempty"` // the text of the error, without the prefix "eventbus: ", cut at 4 KiB
}

// An AuditOutcome is the result of a run as a middleware sees it. Whether a failed event is retried
// is decided later, by the bus; see observer.Handled.
type AuditOutcome string

// The outcomes of runs. If a batch handler panics or calls runtime.Goexit, the outcome is
// AuditFailure, because each event of the batch gets the panic as an error.
const (
	AuditSuccess AuditOutcome = "success" // the handler returned nil
	AuditFailure AuditOutcome = "failure" // the handler returned an error; Snooze and Drop count
	AuditPanic   AuditOutcome = "panic"   // a handler of single events panicked or called runtime.Goexit
	AuditHeld    AuditOutcome = "held"    // a ManualHandler returned nil: the event is settled later
)

// AuditOptions are the settings of [Audit]. A zero field means its default.
type AuditOptions struct {
	Timeout time.Duration // the most time to publish one record; default 5 s
	OnError OnError       // called for each record that could not be published; default: log a warning
}

// Audit publishes an [AuditRecord] to topic for each run of a handler, after the run and before the
// bus acts on its result. The record has the text of the handler's error, but not the event's
// payload, headers or key. An event that ended with an [observer.NotRunError] did not run, so it
// gets no record, and a crash during a run leaves none.
//
// Each event waits until its record is stored, for at most AuditOptions.Timeout. A record that
// cannot be stored never fails the event; Audit calls OnError instead. If events must not wait, use
// package lifecycle, whose records may be lost.
//
// Audit makes no records about events of topic itself or their dead letters. It panics if p is nil
// or Timeout is negative.
func Audit(p eventbus.Publisher, topic string, o AuditOptions) eventbus.Middleware {
	switch {
	case p == nil:
		panic("eventbus: Audit: the publisher is nil")
	case o.Timeout < 0:
		panic("eventbus: Audit: Timeout is negative")
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	a := &audit{publisher: p, records: eventbus.Topic[AuditRecord]{Name: topic, Type: AuditType}, o: o}
	return func(next eventbus.Handler) eventbus.Handler {
		return func(ctx context.Context, d *eventbus.Delivery) error {
			if letter, dead := eventbus.DeadLetterOf(&d.Event); d.Topic == topic || dead && letter.Topic == topic {
				return next(ctx, d)
			}
			seen := *d // a copy, because the handler may change *d
			r := AuditRecord{
				Topic: d.Topic, Group: d.Group, ID: d.ID, Type: d.Type, Attempt: d.Attempt,
				Began: time.Now().Round(0).UTC(), Outcome: AuditPanic,
			}
			// The panic must pass through unrecovered, or its stack would be lost.
			defer func(start time.Time) {
				r.Took = time.Since(start)
				if r.Outcome != "" {
					a.store(ctx, &seen, r)
				}
			}(time.Now())
			err := next(ctx, d)
			r.Outcome, r.Error = auditOutcome(d, err)
			return err
		}
	}
}

// auditOutcome returns the outcome and the error text of a run that returned err. The outcome is
// empty if the handler did not run.
func auditOutcome(d *eventbus.Delivery, err error) (AuditOutcome, string) {
	const most = 4 << 10
	switch {
	case isNotRun(err):
		return "", ""
	case err != nil:
		text := observer.ErrorText(err)
		return AuditFailure, text[:min(len(text), most)]
	case d.Manual:
		return AuditHeld, ""
	}
	return AuditSuccess, ""
}

type audit struct {
	publisher eventbus.Publisher
	records   eventbus.Topic[AuditRecord]
	o         AuditOptions
}

// store publishes r, even if the run's context has ended.
func (a *audit) store(ctx context.Context, d *eventbus.Delivery, r AuditRecord) {
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), a.o.Timeout, errAuditTimeout)
	defer cancel()
	if err := a.records.Publish(bounded, a.publisher, r); err != nil {
		a.o.OnError.report(ctx, d, fmt.Errorf("eventbus: audit: %w", err))
	}
}

var errAuditTimeout = errors.New("eventbus: audit: AuditOptions.Timeout is over")

// An OnError handles an error that does not fail the event d, for example when [Audit] cannot store
// a record. It is called on handlers' goroutines, possibly concurrently. A nil OnError logs a
// warning with slog.Default().
type OnError func(ctx context.Context, d *eventbus.Delivery, err error)

func (f OnError) report(ctx context.Context, d *eventbus.Delivery, err error) {
	if f != nil {
		f(ctx, d, err)
		return
	}
	slog.Default().WarnContext(ctx, "eventbus: middleware failed", "topic", d.Topic, "group", d.Group,
		"id", d.ID, "attempt", d.Attempt, "error", err.Error())
}
