package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// Instruments are the SDK of a program: spans stay in memory, and Prometheus gets the
// metrics.
type instruments struct {
	spans     *tracetest.InMemoryExporter
	tracers   *sdktrace.TracerProvider
	registry  *prometheus.Registry
	telemetry *telemetry.Telemetry
}

func newInstruments(o telemetry.Options) (*instruments, error) {
	i := &instruments{spans: tracetest.NewInMemoryExporter(), registry: prometheus.NewRegistry()}
	i.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(i.spans))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(i.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	i.telemetry, err = telemetry.New(i.tracers, sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), o)
	return i, err
}

// options are the options of a bus with telemetry; its hooks come before others.
func (i *instruments) options(others observer.Observer) eventbus.Options {
	return eventbus.Options{
		Service:           "shop",
		Observer:          observer.Join(i.telemetry.Observer(), others),
		Middleware:        []eventbus.Middleware{i.telemetry.Middleware},
		PublishMiddleware: []eventbus.PublishMiddleware{i.telemetry.PublishMiddleware},
	}
}

// A sample is one value of a metric.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// samples lists the metrics. A histogram is its count and its sum.
func (i *instruments) samples() (all []sample, err error) {
	families, err := i.registry.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			add := func(suffix string, value float64) {
				all = append(all, sample{f.GetName() + suffix, labels, value})
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add("", m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add("", m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				add("_count", float64(m.GetHistogram().GetSampleCount()))
				add("_sum", m.GetHistogram().GetSampleSum())
			}
		}
	}
	return all, err
}

// sum adds up the values of a metric whose labels have the given values.
func sum(all []sample, name string, labels ...string) (total float64) {
	for _, s := range all {
		fits := s.name == name
		for i := 0; i+1 < len(labels); i += 2 {
			fits = fits && s.labels[labels[i]] == labels[i+1]
		}
		if fits {
			total += s.value
		}
	}
	return total
}

// printMetrics prints the metrics, without the labels that all of them have here.
func (i *instruments) printMetrics(out io.Writer) error {
	all, err := i.samples()
	if err != nil {
		return err
	}
	for _, s := range all {
		var labels []string
		for name, value := range s.labels {
			if !strings.HasPrefix(name, "messaging_system") && !strings.HasPrefix(name, "server_") && name != "messaging_operation_type" {
				labels = append(labels, fmt.Sprintf("%s=%q", name, value))
			}
		}
		slices.Sort(labels)
		fmt.Fprintf(out, "%s{%s} %.6g\n", s.name, strings.Join(labels, ","), s.value)
	}
	return nil
}
