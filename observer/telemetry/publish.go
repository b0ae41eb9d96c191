package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
)

// PublishMiddleware is for Options.PublishMiddleware. It makes a span for each Publish, and
// for each event if there are several. The event's headers carry the span's context while
// next runs; then the event has its own headers again. If headers have a context already,
// it stays, and the span of Publish links to it. If an event has no room for more headers,
// it is published without a context.
func (t *Telemetry) PublishMiddleware(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if len(events) == 0 {
			return next.Publish(ctx, topic, events...)
		}
		began := time.Now()
		if !t.traces {
			err := next.Publish(ctx, topic, events...)
			t.sent(ctx, topic, len(events), err, time.Since(began))
			return err
		}
		ctx, s := t.startSending(ctx, topic, events)
		defer s.end()
		s.err = next.Publish(ctx, topic, events...)
		t.sent(ctx, topic, len(events), s.err, time.Since(began))
		return s.err
	})
}

// A sending is a Publish under way, with its span.
type sending struct {
	span   trace.Span
	events []*eventbus.Event
	own    []eventbus.Headers // of the events, without a context
	err    error
}

func (t *Telemetry) startSending(ctx context.Context, topic string, events []*eventbus.Event) (context.Context, *sending) {
	s := &sending{events: events, own: make([]eventbus.Headers, len(events)), err: errPanicked}
	if len(events) == 1 && !t.isCreated(events[0]) {
		ctx, s.span = t.start(ctx, publish, topic, trace.SpanKindProducer)
		s.carry(t, ctx, 0, s.span)
		return ctx, s
	}
	links := make([]trace.Link, 0, len(events))
	for i, e := range events {
		if created := t.create(ctx, topic, s, i, e); created.IsValid() {
			links = append(links, trace.Link{SpanContext: created})
		}
	}
	ctx, s.span = t.start(ctx, publish, topic, trace.SpanKindClient, trace.WithLinks(links...))
	if len(events) > 1 {
		s.span.SetAttributes(semconv.MessagingBatchMessageCount(len(events)))
	}
	return ctx, s
}

// errPanicked stands for the error of a call that does not return.
var errPanicked error = &eventbus.PanicError{}

// isCreated reports whether the headers of e have the context of a span that created it.
func (t *Telemetry) isCreated(e *eventbus.Event) bool {
	if e == nil {
		return true // Publish refuses it
	}
	_, sc := t.extract(context.Background(), e.Headers)
	return sc.IsValid()
}

// create returns the context of the span that created e, and makes that span if there is
// none yet.
func (t *Telemetry) create(ctx context.Context, topic string, s *sending, i int, e *eventbus.Event) trace.SpanContext {
	if e == nil {
		return trace.SpanContext{}
	}
	if _, sc := t.extract(context.Background(), e.Headers); sc.IsValid() {
		s.own[i] = e.Headers
		return sc
	}
	ctx, span := t.start(ctx, create, topic, trace.SpanKindProducer)
	if e.ID != "" {
		span.SetAttributes(semconv.MessagingMessageID(e.ID))
	}
	s.carry(t, ctx, i, span)
	span.End()
	return span.SpanContext()
}

// carry puts the context of span, which is in ctx, into the headers of an event.
func (s *sending) carry(t *Telemetry, ctx context.Context, i int, span trace.Span) {
	e := s.events[i]
	s.own[i] = e.Headers
	var fits bool
	if e.Headers, fits = t.inject(ctx, e.Headers); !fits {
		span.SetAttributes(omittedKey.Bool(true))
	}
}

// end gives the events their own headers again, and ends the span.
func (s *sending) end() {
	for i := len(s.events) - 1; i >= 0; i-- { // backwards, as an event may be there twice
		if e := s.events[i]; e != nil {
			e.Headers = s.own[i]
		}
	}
	if len(s.events) == 1 && s.events[0] != nil && s.events[0].ID != "" {
		s.span.SetAttributes(semconv.MessagingMessageID(s.events[0].ID))
	}
	endSpan(s.span, s.err)
}

// start starts the span of an operation on topic.
func (t *Telemetry) start(ctx context.Context, operation, topic string, kind trace.SpanKind, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, operation+" "+topic, append(o, trace.WithSpanKind(kind), trace.WithAttributes(
		semconv.MessagingOperationName(operation), operationType(operation),
		semconv.MessagingSystemKey.String(t.options.System), semconv.MessagingDestinationName(topic),
	))...)
}

// endSpan ends span with the status of err.
func endSpan(span trace.Span, err error, attributes ...attribute.KeyValue) {
	if kind := errorType(err); kind != "" {
		span.SetStatus(codes.Error, err.Error())
		attributes = append(attributes, semconv.ErrorTypeKey.String(kind))
	}
	span.SetAttributes(attributes...)
	span.End()
}

// sent measures a call of Publish that has ended.
func (t *Telemetry) sent(ctx context.Context, topic string, events int, err error, took time.Duration) {
	l := labels{operation: publish, topic: topic, errorType: errorType(err)}
	t.operations.Record(ctx, took.Seconds(), t.labels.of(l).record...)
	l.errorType = ""
	t.batches.Record(ctx, int64(events), t.labels.of(labels{topic: topic}).record...)
	failed, _ := errors.AsType[*eventbus.PublishError](err)
	if err == nil || failed == nil || len(failed.Errors) != events {
		l.errorType = errorType(err)
		t.sentMessages.Add(ctx, int64(events), t.labels.of(l).add...)
		return
	}
	for _, e := range failed.Errors {
		l.errorType = errorType(e)
		t.sentMessages.Add(ctx, 1, t.labels.of(l).add...)
	}
}
