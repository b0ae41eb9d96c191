package telemetry

import (
	"cmp"
	"runtime/debug"
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

// Attributes of our own, where the OpenTelemetry conventions for messaging have none.
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

// labels are the attributes of a measurement. Each takes only a small number of values, so that a
// metric has few series. Empty ones are left out.
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

// maxType is the longest event type that metrics show, in bytes.
const maxType = 512

// valid returns text as UTF-8, which exporters need.
func valid(text string) string { return strings.ToValidUTF8(text, "�") }

// kindOf returns the span kind of an operation.
func kindOf(operation string) trace.SpanKind {
	switch operation {
	case create, publish:
		return trace.SpanKindProducer
	case process:
		return trace.SpanKindConsumer
	}
	return trace.SpanKindClient
}

// A labelSet holds the attributes of labels in the types that instruments and tracers take. Sets
// are reused, so that a measurement allocates nothing and a span little.
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

// labelSets caches a labelSet for each value of labels that was used.
type labelSets struct {
	mu     sync.RWMutex
	broker backend.Identity
	known  map[labels]*labelSet
}

// maxLabelSets limits the cache, and so the memory of a program that keeps publishing to new
// topics. Beyond it, a set is built for each measurement.
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

// bounded limits the number of different texts. It returns the first ones unchanged, and "_OTHER"
// for all further ones. The type of another program's event may be any text, so a text that is too
// long or not UTF-8, which exporters refuse, becomes "_OTHER" too.
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

// identify sets the attributes that name the broker. Options.System takes precedence.
func (t *Telemetry) identify(broker backend.Identity) {
	broker.System = cmp.Or(t.options.System, broker.System, "eventbus")
	t.labels.setBroker(broker)
}

// setBroker sets the broker that all sets name, and drops those that name another one.
func (s *labelSets) setBroker(broker backend.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker != broker {
		s.broker, s.known = broker, nil
	}
}

// brokerAttributes returns the attributes that name a broker in both metrics and spans, and those
// that only spans have.
func brokerAttributes(b backend.Identity) (both, spans []attribute.KeyValue) {
	both = append(both, semconv.MessagingSystemKey.String(b.System))
	if b.Address != "" {
		both = append(both, semconv.ServerAddress(valid(b.Address)))
	}
	if b.Port > 0 {
		both = append(both, semconv.ServerPort(b.Port))
	}
	if b.Client != "" {
		spans = append(spans, semconv.MessagingClientID(valid(b.Client)))
	}
	return both, spans
}

// version returns the version of this module in the program, which is the version of the
// instrumentation scope. In a checkout of the module it is "(devel)".
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	return versionIn(info)
})

const devel = "(devel)"

// versionIn returns the version of this module in a build.
func versionIn(info *debug.BuildInfo) string {
	const suffix = "/observer/telemetry"
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != strings.TrimSuffix(scope, suffix) {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, devel)
	}
	return devel
}
