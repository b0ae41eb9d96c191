package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus/observer"
)

// Observer returns hooks that count reads, outcomes, settlements and failures, and make the spans
// of settlements. They log nothing, so combine them, using observer.Join, with an observer that
// logs, such as observer.Slog.
func (t *Telemetry) Observer() observer.Observer {
	return observer.Observer{
		Dropped:      func(e observer.Dropped) { t.count(t.dropped, e.Events, labels{topic: e.Topic}) },
		Received:     t.received,
		Handled:      t.handled,
		Settled:      t.settled,
		Retried:      t.retried,
		DeadLettered: t.deadLettered,
		Discarded:    t.discarded,
		Extended: func(e observer.Extended) {
			t.count(t.extended, e.Events, labels{topic: e.Topic, group: e.Group})
		},
		LeaseLost: func(e observer.LeaseLost) { t.count(t.lost, 1, labels{topic: e.Topic, group: e.Group}) },
		PartitionMoved: func(e observer.PartitionMoved) {
			t.count(t.moved, 1, labels{topic: e.Topic, group: e.Group, reason: e.Reason})
		},
		Stuck:  func(e observer.Stuck) { t.count(t.stuck, 1, labels{topic: e.Topic, group: e.Group}) },
		Failed: t.failed,
	}
}

// received counts the messages of a read. Reads have no span, because they wait in the
// background and belong to no trace, and their duration would only show how long no message
// came.
func (t *Telemetry) received(e observer.Received) {
	defer contain()
	l := labels{topic: e.Topic, group: e.Group}
	t.reads.Record(context.Background(), int64(e.Events), t.labels.of(l).record...)
	t.count(t.redelivered, e.Redelivered, l)
	l.operation = receive
	t.count(t.consumed, e.Events, l)
}

func (t *Telemetry) handled(e observer.Handled) {
	l := labels{topic: e.Topic, group: e.Group, outcome: string(e.Outcome), errorType: t.runErrorType(e.Err)}
	if r, ok := e.Tag.(*run); ok {
		l.eventType = r.eventType
	}
	t.count(t.attempts, 1, l)
}

// settled measures a call to the backend that acknowledged events, and makes its span: a child of
// the event's processing span if there was one event, and otherwise linked to the processing spans
// of all of them.
func (t *Telemetry) settled(e observer.Settled) {
	defer contain()
	set := t.labels.of(labels{operation: acknowledge, topic: e.Topic, group: e.Group})
	t.operations.Record(context.Background(), e.Took.Seconds(), set.record...)
	var links []trace.Link
	id := ""
	for _, tag := range e.Tags {
		if r, ok := tag.(*run); ok && r.span.IsSampled() {
			id = r.id
			links = append(links, trace.Link{SpanContext: r.span})
		}
	}
	if len(links) == 0 {
		return
	}
	ctx, now := context.Background(), time.Now()
	options := []trace.SpanStartOption{trace.WithTimestamp(now.Add(-e.Took))}
	if e.Events == 1 {
		ctx = trace.ContextWithSpanContext(ctx, links[0].SpanContext)
		if id != "" {
			options = append(options, trace.WithAttributes(semconv.MessagingMessageID(id)))
		}
	} else {
		options = append(options, trace.WithLinks(links...), trace.WithAttributes(semconv.MessagingBatchMessageCount(e.Events)))
	}
	_, span := t.start(ctx, labels{operation: acknowledge, topic: e.Topic, group: e.Group}, options...)
	span.End(trace.WithTimestamp(now))
}

func (t *Telemetry) retried(e observer.Retried) {
	operation := retry
	if e.Outcome == observer.Snooze {
		operation = snooze
	}
	t.settle(operation, e.About, delayKey.Float64(e.After.Seconds()))
}

func (t *Telemetry) deadLettered(e observer.DeadLettered) {
	t.count(t.deadLetters, 1, labels{topic: e.Topic, group: e.Group, reason: e.Reason})
	t.settle(deadLetter, e.About, reasonKey.String(e.Reason), deadLetterKey.String(e.DeadLetter))
}

func (t *Telemetry) discarded(e observer.Discarded) {
	t.count(t.discards, 1, labels{topic: e.Topic, group: e.Group, reason: e.Reason})
	t.settle(discard, e.About, reasonKey.String(e.Reason))
}

// settle makes the span of a decision about one event, as a child of the event's processing span.
// It has no duration, because the bus settles many events with one call to the backend.
func (t *Telemetry) settle(operation string, about observer.About, attributes ...attribute.KeyValue) {
	if !t.traces {
		return
	}
	defer contain()
	ctx := context.Background()
	if r, ok := about.Tag.(*run); ok && r.span.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, r.span)
	}
	attributes = append(attributes, attemptKey.Int(about.Attempt))
	if about.ID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(valid(about.ID)))
	}
	_, span := t.start(ctx, labels{operation: operation, topic: about.Topic, group: about.Group}, trace.WithAttributes(attributes...))
	span.End()
}

func (t *Telemetry) failed(e observer.Failed) {
	if errors.Is(e.Err, observer.ErrDropped) {
		t.count(t.unseen, e.Events, labels{})
		return
	}
	t.count(t.failures, 1, labels{topic: e.Topic, group: e.Group, scope: string(e.Scope), errorType: errorType(e.Err)})
}
