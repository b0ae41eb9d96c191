package telemetry_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A recorder holds the SDK's own readers of spans and metrics.
type recorder struct {
	t         *testing.T
	spans     *tracetest.SpanRecorder
	tracers   *sdktrace.TracerProvider
	reader    *sdkmetric.ManualReader
	meters    *sdkmetric.MeterProvider
	telemetry *telemetry.Telemetry
	settled   chan int // events whose acknowledgement was told
}

func newRecorder(t *testing.T, o telemetry.Options) *recorder {
	r := &recorder{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader(), settled: make(chan int, 100)}
	r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	var err error
	r.telemetry, err = telemetry.New(r.tracers, r.meters, o)
	require.NoError(t, err)
	return r
}

// options are the options of a bus that tells the recorder.
func (r *recorder) options() eventbus.Options {
	return eventbus.Options{
		Observer: observer.Join(r.telemetry.Observer(), observer.Observer{
			Settled: func(e observer.Settled) { r.settled <- e.Events },
		}),
		Middleware:        []eventbus.Middleware{r.telemetry.Middleware},
		PublishMiddleware: []eventbus.PublishMiddleware{r.telemetry.PublishMiddleware},
	}
}

// bus returns a watched bus on b.
func (r *recorder) bus(b backend.Backend) *eventbus.Bus {
	r.t.Helper()
	bus, err := eventbus.New(b, r.options())
	require.NoError(r.t, err)
	stop, err := r.telemetry.Watch(bus)
	require.NoError(r.t, err)
	r.t.Cleanup(stop)
	return bus
}

// divided returns a watched bus on b, whose topic "divided" has n partitions.
func (r *recorder) divided(b backend.Backend, n int) *eventbus.Bus {
	r.t.Helper()
	o := r.options()
	o.Topics = map[string]eventbus.TopicOptions{"divided": {Partitions: n}}
	bus, err := eventbus.New(b, o)
	require.NoError(r.t, err)
	stop, err := r.telemetry.Watch(bus)
	require.NoError(r.t, err)
	r.t.Cleanup(stop)
	return bus
}

// span returns a span of an operation, in the order of their ends.
func (r *recorder) span(operation string, i int) sdktrace.ReadOnlySpan {
	r.t.Helper()
	for _, s := range r.spans.Ended() {
		if strings.HasPrefix(s.Name(), operation+" ") {
			if i == 0 {
				return s
			}
			i--
		}
	}
	require.Fail(r.t, "no such span", r.tree())
	return nil
}

// tree draws all spans, in the order of their ends: children below their parent, with kind,
// attributes, status, and the names of linked spans. Attributes that every span has, and
// texts that differ from run to run, are left out.
func (r *recorder) tree() string {
	ended := r.spans.Ended()
	byID, children := map[trace.SpanID]sdktrace.ReadOnlySpan{}, map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	for _, s := range ended {
		byID[s.SpanContext().SpanID()] = s
	}
	for _, s := range ended {
		parent := s.Parent().SpanID()
		if _, known := byID[parent]; !known {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], s)
	}
	var b strings.Builder
	var draw func(parent trace.SpanID, depth int)
	draw = func(parent trace.SpanID, depth int) {
		for _, s := range children[parent] {
			fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), describe(s, byID))
			draw(s.SpanContext().SpanID(), depth+1)
		}
	}
	draw(trace.SpanID{}, 0)
	return b.String()
}

func describe(s sdktrace.ReadOnlySpan, byID map[trace.SpanID]sdktrace.ReadOnlySpan) string {
	text := s.Name() + " [" + s.SpanKind().String() + "]"
	for _, a := range s.Attributes() {
		switch a.Key {
		case "messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name",
			"server.address", "server.port", "messaging.client.id":
		default:
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
		}
	}
	if s.Status().Code == codes.Error {
		text += " ERROR"
	}
	for _, l := range s.Links() {
		name := "?"
		if linked, ok := byID[l.SpanContext.SpanID()]; ok {
			name = linked.Name()
		}
		text += " → " + name
	}
	return text
}

// collect returns the metrics by name.
func (r *recorder) collect() map[string]metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r.t, r.reader.Collect(context.WithoutCancel(r.t.Context()), &all))
	byName := map[string]metricdata.Metrics{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// lines lists the metrics: name, labels and value. A histogram has the number of its
// measurements. Labels that every metric has are left out.
func (r *recorder) lines() string {
	r.t.Helper()
	var lines []string
	for name, m := range r.collect() {
		for _, p := range points(m) {
			var labels []string
			for _, a := range p.set.ToSlice() {
				switch a.Key {
				case "messaging.system", "messaging.operation.type", "server.address", "server.port":
				default:
					labels = append(labels, fmt.Sprintf("%s=%s", short.Replace(string(a.Key)), a.Value.String()))
				}
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), p.value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

var short = strings.NewReplacer("messaging.destination.name", "topic", "messaging.consumer.group.name", "group",
	"messaging.operation.name", "operation", "eventbus.", "")

// A point is a measured value with its labels.
type point struct {
	set   attribute.Set
	value float64
}

func points(m metricdata.Metrics) (ps []point) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Value)})
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Value)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			ps = append(ps, point{p.Attributes, p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Count)})
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Count)})
		}
	default:
		panic(fmt.Sprintf("%s has data of type %T", m.Name, data))
	}
	slices.SortFunc(ps, func(a, b point) int {
		return cmp.Compare(a.set.Encoded(attribute.DefaultEncoder()), b.set.Encoded(attribute.DefaultEncoder()))
	})
	return ps
}

// value returns the value of the metric's only point, or of its point with the label.
func (r *recorder) value(name string, label ...attribute.KeyValue) float64 {
	r.t.Helper()
	for _, p := range points(r.collect()[name]) {
		found := true
		for _, l := range label {
			v, ok := p.set.Value(l.Key)
			found = found && ok && v == l.Value
		}
		if found {
			return p.value
		}
	}
	require.Failf(r.t, "no measurement", "%s %v is not among:\n%s", name, label, r.lines())
	return 0
}
