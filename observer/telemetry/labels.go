package telemetry

import (
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/each"
)

// The attributes that the OpenTelemetry conventions for messaging lack.
const (
	attemptKey    = attribute.Key("eventbus.attempt")
	outcomeKey    = attribute.Key("eventbus.outcome")
	reasonKey     = attribute.Key("eventbus.reason")
	scopeKey      = attribute.Key("eventbus.scope")
	eventTypeKey  = attribute.Key("eventbus.event.type")
	delayKey      = attribute.Key("eventbus.retry.delay")
	deadLetterKey = attribute.Key("eventbus.dead_letter.topic")
	omittedKey    = attribute.Key("eventbus.context.omitted")
)

// The names of the operations of a bus. operationType returns the type that the conventions
// have for each of them.
const (
	create      = "create"
	publish     = "publish" // its type is send
	receive     = "receive"
	process     = "process"
	acknowledge = "acknowledge" // its type is settle, like the type of the operations below
	retry       = "retry"
	snooze      = "snooze"
	deadLetter  = "dead-letter"
	discard     = "discard"
)

// operationType returns the attribute messaging.operation.type of an operation.
func operationType(operation string) attribute.KeyValue {
	switch operation {
	case create:
		return semconv.MessagingOperationTypeCreate
	case publish:
		return semconv.MessagingOperationTypeSend
	case receive:
		return semconv.MessagingOperationTypeReceive
	case process:
		return semconv.MessagingOperationTypeProcess
	}
	return semconv.MessagingOperationTypeSettle
}

// labels are the attributes of a measurement. Each attribute takes only a small number of
// values, so that a metric has few series. Empty attributes are left out.
type labels struct {
	operation, topic, group, outcome, reason, scope, errorType, eventType string
}

func (l labels) attributes(broker []attribute.KeyValue) attribute.Set {
	list := append(make([]attribute.KeyValue, 0, 12), broker...)
	add := func(key attribute.Key, value string) {
		if value != "" {
			list = append(list, key.String(value))
		}
	}
	if l.operation != "" {
		list = append(list, semconv.MessagingOperationName(l.operation), operationType(l.operation))
	}
	add(semconv.MessagingDestinationNameKey, l.topic)
	add(semconv.MessagingConsumerGroupNameKey, each.Label(l.group))
	add(outcomeKey, l.outcome)
	add(reasonKey, l.reason)
	add(scopeKey, l.scope)
	add(semconv.ErrorTypeKey, l.errorType)
	add(eventTypeKey, l.eventType)
	return attribute.NewSet(list...)
}

// maxType is the length of the longest event type that metrics show, in bytes.
const maxType = 512

// valid returns text as UTF-8, which exporters need.
func valid(text string) string { return strings.ToValidUTF8(text, "�") }

// kindOf returns the kind of the span of an operation.
func kindOf(operation string) trace.SpanKind {
	switch operation {
	case create, publish:
		return trace.SpanKindProducer
	case process:
		return trace.SpanKindConsumer
	}
	return trace.SpanKindClient
}

// A labelSet has the attributes of labels in the types that instruments and tracers take.
// Several measurements use the same labelSet, so that a measurement allocates nothing, and
// a span little.
type labelSet struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
	span    []trace.SpanStartOption
	name    string // the name of the span
}

func newLabelSet(l labels, broker backend.Identity) *labelSet {
	both, spans := brokerAttributes(broker)
	all := l.attributes(both)
	option := metric.WithAttributeSet(all)
	return &labelSet{
		add: []metric.AddOption{option}, record: []metric.RecordOption{option}, observe: []metric.ObserveOption{option},
		span: []trace.SpanStartOption{trace.WithSpanKind(kindOf(l.operation)), trace.WithAttributes(append(all.ToSlice(), spans...)...)},
		name: l.operation + " " + l.topic,
	}
}

// labelSets keeps a labelSet for each value of labels that was used.
type labelSets struct {
	mu     sync.RWMutex
	broker backend.Identity
	known  map[labels]*labelSet
}

// maxLabelSets is the most sets that labelSets keeps. It bounds the memory of a program
// that publishes to ever new topics. A further set is made anew for each measurement.
const maxLabelSets = 4096

func (s *labelSets) of(l labels) *labelSet {
	s.mu.RLock()
	set, broker := s.known[l], s.broker
	s.mu.RUnlock()
	if set != nil {
		return set
	}
	set = newLabelSet(l, broker)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) < maxLabelSets && s.broker == broker {
		if s.known == nil {
			s.known = map[labels]*labelSet{}
		}
		s.known[l] = set
	}
	return set
}

// bounded bounds the number of different texts. It returns each of the first texts
// unchanged, and "_OTHER" for further ones. A text that is too long or not UTF-8 counts as a
// further one: exporters refuse it, and the type of another program's event may be any text.
type bounded struct {
	most int

	mu    sync.RWMutex
	known map[string]struct{}
}

func (b *bounded) of(text string) string {
	if text == "" || b.most < 0 {
		return ""
	}
	if len(text) > maxType || !utf8.ValidString(text) {
		return other
	}
	b.mu.RLock()
	_, ok := b.known[text]
	full := len(b.known) >= b.most
	b.mu.RUnlock()
	switch {
	case ok:
		return text
	case full:
		return other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= b.most {
		return other
	}
	if b.known == nil {
		b.known = map[string]struct{}{}
	}
	b.known[text] = struct{}{}
	return text
}
