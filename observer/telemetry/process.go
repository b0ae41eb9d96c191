package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// A run is the tag ([eventbus.Tag]) of a handler's run, by which the observer's hooks find the span
// of the run.
type run struct {
	span      trace.SpanContext // the context of the processing span; invalid if there is no span
	eventType string            // the event type as metrics show it
	id        string            // the ID of the event; empty if there is no span
}

// Middleware goes into Options.Middleware of the bus. It makes a span for each run of a handler and
// measures the run. An event that later middleware keeps from the handler, such as a duplicate, has
// a span but is not measured. Put it first, so that it sees the results of the other middleware.
// The Install method of middleware.Envelope still puts the envelope before it, so an event that the
// envelope cannot open has no span.
func (t *Telemetry) Middleware(next eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		p := processing{t: t, began: time.Now(), err: errPanicked}
		p.labels = labels{topic: d.Topic, group: d.Group, eventType: t.types.of(d.Type)}
		ctx = p.start(ctx, d)
		defer p.end(ctx)
		p.err = next(ctx, d)
		return p.err
	}
}

// A processing is a handler's run in progress, with its span.
type processing struct {
	t      *Telemetry
	labels labels
	began  time.Time
	span   trace.Span // nil without traces
	err    error
}

// start starts the span of a run, tags the run, and returns the context for the handler. It also
// records the queue time of a first delivery.
func (p *processing) start(ctx context.Context, d *eventbus.Delivery) (handler context.Context) {
	handler = ctx
	defer contain()
	t, r := p.t, &run{eventType: p.labels.eventType}
	if d.Attempt == 1 && !d.Redelivered && !d.Time.IsZero() {
		waited := max(p.began.Sub(d.Time), 0) // the publisher's clock may be ahead
		t.queueTime.Record(ctx, waited.Seconds(), t.labels.of(p.labels).record...)
	}
	eventbus.Tag(ctx, r)
	if !t.traces {
		return ctx
	}
	if trace.SpanContextFromContext(ctx).IsValid() { // the span around the call to Subscribe, which ended long ago
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	ctx, created := t.extract(ctx, d.Headers)
	r.id = valid(d.ID)
	attributes := make([]attribute.KeyValue, 0, 4)
	attributes = append(attributes, semconv.MessagingMessageID(r.id), semconv.MessagingMessageBodySize(len(d.Payload)), attemptKey.Int(d.Attempt))
	if d.Type != "" {
		attributes = append(attributes, eventTypeKey.String(valid(d.Type)))
	}
	options := make([]trace.SpanStartOption, 0, 3)
	options = append(options, trace.WithAttributes(attributes...))
	if created.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: created}))
	}
	if !t.options.ContinueTrace {
		options = append(options, trace.WithNewRoot())
	}
	handler, p.span = t.start(ctx, labels{operation: process, topic: d.Topic, group: d.Group}, options...)
	r.span = p.span.SpanContext()
	return handler
}

// end ends the span and measures the run. If the handler panicked, p.err is errPanicked. end does
// not recover, because the bus recovers and needs the stack.
func (p *processing) end(ctx context.Context) {
	defer contain()
	if p.span != nil {
		defer p.span.End() // even if a method of p.err panics
	}
	l := p.labels
	l.operation, l.errorType = process, p.t.runErrorType(p.err)
	if _, unrun := errors.AsType[*observer.NotRunError](p.err); !unrun {
		p.t.processes.Record(ctx, time.Since(p.began).Seconds(), p.t.labels.of(l).record...)
	}
	if p.span != nil {
		endSpan(p.span, p.err, l.errorType)
	}
}
