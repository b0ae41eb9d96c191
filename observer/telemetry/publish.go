package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
)

// PublishMiddleware goes into Options.PublishMiddleware of the bus. It makes a span for each call
// to Publish and, if the call has several events, one for each event. While next runs, the headers
// of an event carry the context of its span; afterwards the event has its original headers again.
// If an event's headers already have the context of a span, that context stays, and the span of
// Publish links to it. An event without room for more headers is published without a context.
func (t *Telemetry) PublishMiddleware(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if len(events) == 0 {
			return next.Publish(ctx, topic, events...)
		}
		s := sending{t: t, topic: topic, events: events, began: time.Now(), err: errPanicked}
		if t.traces {
			s.events, s.own = slices.Clone(events), ownHeaders(events) // next may change its slice
			ctx = s.start(ctx)
		}
		defer s.end(ctx)
		s.err = next.Publish(ctx, topic, events...)
		return s.err
	})
}

// A sending is a call to Publish in progress, with its span.
type sending struct {
	t      *Telemetry
	topic  string
	events []*eventbus.Event
	own    []eventbus.Headers // the events' original headers; nil if they were not replaced
	began  time.Time
	span   trace.Span // nil without traces
	err    error
}

func ownHeaders(events []*eventbus.Event) []eventbus.Headers {
	own := make([]eventbus.Headers, len(events))
	for i, e := range events {
		own[i] = e.Headers
	}
	return own
}

// start starts the span of the call, which also creates the event if there is only one.
func (s *sending) start(ctx context.Context) (sent context.Context) {
	sent = ctx
	defer contain()
	if len(s.events) == 1 && !s.t.creator(s.events[0]).IsValid() {
		sent, s.span = s.t.start(ctx, labels{operation: publish, topic: s.topic})
		s.t.carry(sent, s.span, s.events[0])
		return sent
	}
	links := make([]trace.Link, 0, len(s.events))
	for _, e := range s.events {
		created := s.t.creator(e)
		if !created.IsValid() {
			created = s.t.create(ctx, s.topic, e)
		}
		links = append(links, trace.Link{SpanContext: created})
	}
	sent, s.span = s.t.start(ctx, labels{operation: publish, topic: s.topic}, trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...))
	if len(s.events) > 1 {
		s.span.SetAttributes(semconv.MessagingBatchMessageCount(len(s.events)))
	}
	return sent
}

// creator returns the context of the span that created e, which is invalid if the headers of e have
// none.
func (t *Telemetry) creator(e *eventbus.Event) trace.SpanContext {
	_, created := t.extract(context.Background(), e.Headers)
	return created
}

// create makes the span of one of several events of a call.
func (t *Telemetry) create(ctx context.Context, topic string, e *eventbus.Event) trace.SpanContext {
	ctx, span := t.start(ctx, labels{operation: create, topic: topic})
	defer span.End()
	describe(span, e)
	t.carry(ctx, span, e)
	return span.SpanContext()
}

// describe adds the ID of e, if it has one, and the size of its payload to span.
func describe(span trace.Span, e *eventbus.Event) {
	if !span.IsRecording() {
		return
	}
	attributes := make([]attribute.KeyValue, 0, 2)
	attributes = append(attributes, semconv.MessagingMessageBodySize(len(e.Payload)))
	if e.ID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(valid(e.ID)))
	}
	span.SetAttributes(attributes...)
}

// carry adds the context of span to the headers of e. ctx must contain span.
func (t *Telemetry) carry(ctx context.Context, span trace.Span, e *eventbus.Event) {
	headers, fits := t.inject(ctx, e.Headers)
	if !fits {
		span.SetAttributes(omittedKey.Bool(true))
		return
	}
	e.Headers = headers
}

// end restores the headers of the events, ends the span, and measures the call.
func (s *sending) end(ctx context.Context) {
	for i, own := range s.own {
		s.events[i].Headers = own
	}
	defer contain()
	s.t.sent(ctx, s.topic, len(s.events), s.err, time.Since(s.began))
	if s.span == nil {
		return
	}
	if len(s.events) == 1 {
		describe(s.span, s.events[0])
	}
	endSpan(s.span, s.err, errorType(s.err))
}

// sent measures a call to Publish that returned err after the time took.
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
