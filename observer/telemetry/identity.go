package telemetry

import (
	"cmp"
	"runtime/debug"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/seed41896749/eventbus/backend"
)

// identify sets the attributes that name the broker. Options.System has precedence.
func (t *Telemetry) identify(broker backend.Identity) {
	broker.System = cmp.Or(t.options.System, broker.System, "eventbus")
	t.labels.setBroker(broker)
}

// setBroker sets the broker that the attributes of all sets name.
func (s *labelSets) setBroker(broker backend.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker != broker {
		s.broker, s.known = broker, nil
	}
}

// brokerAttributes returns the attributes that name a broker in metrics and spans, and the
// attributes that only spans have.
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

// version returns the version of this module in the program, as the version of the
// instrumentation. It is "(devel)" in a checkout of the module.
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
