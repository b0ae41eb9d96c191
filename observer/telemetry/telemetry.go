// Package telemetry exports traces and metrics of a bus through OpenTelemetry, following the
// semantic conventions for messaging. It depends only on the OpenTelemetry API, so your program
// chooses the SDK and the exporters.
//
// Install adds the observer and the middleware to the options of a bus, and Watch adds its gauges:
//
//	options := eventbus.Options{Service: "shop"}
//	t, err := telemetry.Install(&options)
//	bus, err := eventbus.Open(ctx, url, options, drivers...)
//	stop, err := t.Watch(bus)
//
// See docs/telemetry.md for all spans and metrics, and for what they cost.
package telemetry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/seed41896749/eventbus/observer/telemetry"

// Options are the settings of a Telemetry. A zero field means its default.
type Options struct {
	// System is the attribute messaging.system, such as "redis" or "nats". By default the backend
	// determines it once Watch is called; see [backend.Identified]. Until then, and for a backend
	// that doesn't say, it is "eventbus".
	System string

	// ContinueTrace makes the span that created an event the parent of the spans that process it,
	// so that an event has a single trace. By default each processing span starts a trace of its
	// own. In both cases it links to the creating span.
	ContinueTrace bool

	// Propagator carries the context of a span in the headers of an event. Header names are in
	// lower case. Default: W3C trace context and baggage.
	Propagator propagation.TextMapPropagator

	// EventTypes limits how many event types metrics show; further ones become "_OTHER". Default
	// 50. If negative, metrics show no types.
	EventTypes int

	// ErrorClasses name the values of error.type for handlers' errors. Use the Options.ErrorClasses
	// of the bus, so that metrics, retry rules and dead letters use the same names. Default: none.
	ErrorClasses []eventbus.ErrorClass

	// SampleEvery is how long gauges reuse what the backend said about a group, such as its lag,
	// before it is asked again. Default 10 s.
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

// A Telemetry makes the spans and metrics of one bus. Its methods are safe for concurrent use.
type Telemetry struct {
	options Options
	traces  bool // whether New was given a TracerProvider
	tracer  trace.Tracer
	meter   metric.Meter
	instruments
	labels labelSets
	types  bounded
}

// New returns a Telemetry that makes spans with tracers and metrics with meters. If tracers is nil,
// there are no spans, and event headers are neither written nor read. If meters is nil, there are
// no metrics. For the global providers use [Install]. New fails if the meter refuses an instrument.
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

// contain recovers from a panic of the SDK or of a span processor, so that it affects no handler,
// publisher or other observer, and passes it to OpenTelemetry's error handler. Callers defer it.
func contain() {
	if v := recover(); v != nil {
		otel.Handle(fmt.Errorf("eventbus: telemetry panicked: %v", v))
	}
}

// Install makes a Telemetry with OpenTelemetry's global providers and default [Options], and
// installs it in o; see [Telemetry.Install].
func Install(o *eventbus.Options) (*Telemetry, error) {
	t, err := New(otel.GetTracerProvider(), otel.GetMeterProvider(), Options{})
	if err != nil {
		return nil, err
	}
	t.Install(o)
	return t, nil
}

// Install adds t to o: its observer next to the observer of o, or the default one, and its
// middlewares around those of o.
func (t *Telemetry) Install(o *eventbus.Options) {
	o.Observer = observer.Join(t.Observer(), o.Effective().Observer)
	o.Middleware = append([]eventbus.Middleware{t.Middleware}, o.Middleware...)
	o.PublishMiddleware = append([]eventbus.PublishMiddleware{t.PublishMiddleware}, o.PublishMiddleware...)
}

// errPanicked stands for the error of a call that panics or ends its goroutine, and so returns
// none.
var errPanicked error = &observer.PanicError{Value: "the bus reports the reason"}

// start starts a span for the operation l.operation, with the attributes l.
func (t *Telemetry) start(ctx context.Context, l labels, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	set := t.labels.of(l)
	return t.tracer.Start(ctx, set.name, slices.Concat(set.span, o)...)
}

// endSpan ends span. Its status is an error if kind, the error type of err, is not "".
func endSpan(span trace.Span, err error, kind string, attributes ...attribute.KeyValue) {
	defer span.End()
	span.SetAttributes(attributes...)
	if kind != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		span.SetStatus(codes.Error, valid(err.Error())) // last, because Error may panic
	}
}
