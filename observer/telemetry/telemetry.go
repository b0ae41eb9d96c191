// Package telemetry reports the work of a bus to OpenTelemetry. It makes metrics, and
// spans for the life of an event, by the semantic conventions for messaging. It uses only
// the API of OpenTelemetry. The program chooses the SDK and the exporters.
//
// Install adds its parts to the options of a bus, and Watch adds the gauges of the bus:
//
//	options := eventbus.Options{Service: "shop"}
//	t, err := telemetry.Install(&options)
//	bus, err := eventbus.Open(ctx, url, options, drivers...)
//	stop, err := t.Watch(bus)
//
// docs/telemetry.md has the table of spans and metrics, and the cost.
package telemetry

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// scope is the name of this package for the SDK of OpenTelemetry.
const scope = "github.com/seed41896749/eventbus/observer/telemetry"

// Options are the settings of a Telemetry. A zero field means its default.
type Options struct {
	// System is the attribute messaging.system, such as "redis" or "nats". By default the
	// backend names it from the call of Watch on, see [backend.Identified]. It is
	// "eventbus" before Watch, and for a backend that names none.
	System string

	// ContinueTrace makes the span that created an event the parent of the spans that
	// process it, so that an event has one trace. By default a processing span begins a
	// trace of its own. In both cases it links to the creating span.
	ContinueTrace bool

	// Propagator carries the context of a span in the headers of an event. Header names
	// are in lower case. Default: W3C trace context and baggage.
	Propagator propagation.TextMapPropagator

	// EventTypes is the most event types that metrics show. Metrics show further types as
	// "_OTHER". Default 50; negative: metrics show no types.
	EventTypes int

	// ErrorClasses are the names that the attribute error.type has for errors of handlers.
	// Set the Options.ErrorClasses of the bus here, so that metrics, retry rules and dead
	// letters use the same names. Default: none.
	ErrorClasses []eventbus.ErrorClass

	// SampleEvery is how long gauges show the same answer of the backend about a group,
	// such as its lag, before the backend is asked again. Default 10 s.
	SampleEvery time.Duration
}

func (o Options) withDefaults() Options {
	if o.Propagator == nil {
		o.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	if o.EventTypes == 0 {
		o.EventTypes = 50
	}
	if o.SampleEvery <= 0 {
		o.SampleEvery = 10 * time.Second
	}
	return o
}

// A Telemetry makes the spans and metrics of one bus. Its methods are safe for concurrent
// use.
type Telemetry struct {
	options Options
	traces  bool // whether New was given a TracerProvider
	tracer  trace.Tracer
	meter   metric.Meter
	instruments
	labels labelSets
	types  bounded
}

// New returns a Telemetry that makes spans with tracers and metrics with meters. If
// tracers is nil there are no spans, and headers of events are neither written nor read.
// If meters is nil there are no metrics. For the global providers, pass
// otel.GetTracerProvider() and otel.GetMeterProvider(). New fails if the meter refuses an
// instrument.
func New(tracers trace.TracerProvider, meters metric.MeterProvider, o Options) (*Telemetry, error) {
	t := &Telemetry{options: o.withDefaults(), traces: tracers != nil}
	if tracers == nil {
		tracers = tracenoop.NewTracerProvider()
	}
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	t.types.most = t.options.EventTypes
	t.identify(backend.Identity{})
	version := version()
	t.tracer = tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL), trace.WithInstrumentationVersion(version))
	t.meter = meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL), metric.WithInstrumentationVersion(version))
	var err error
	t.instruments, err = newInstruments(t.meter)
	return t, err
}

// contain recovers from a panic of the SDK or of the program's span processors. So the
// panic harms no handler, publisher or other observer. contain reports the panic to
// OpenTelemetry's error handler. Callers defer it.
func contain() {
	if v := recover(); v != nil {
		otel.Handle(fmt.Errorf("eventbus: telemetry panicked: %v", v))
	}
}
