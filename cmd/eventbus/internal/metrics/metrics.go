// Package metrics serves the metrics of a bus to Prometheus.
package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// A Server answers GET /metrics with the metrics of one bus. Its goroutine accepts connections until Close.
type Server struct {
	telemetry *telemetry.Telemetry
	meters    *sdkmetric.MeterProvider
	listener  net.Listener
	http      http.Server
	served    chan struct{} // closed when the goroutine has ended
	unwatch   func()
}

// Listen returns a server on a TCP address, such as ":9090".
func Listen(ctx context.Context, address string) (*Server, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	s := &Server{meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), served: make(chan struct{}), unwatch: func() {}}
	if s.telemetry, err = telemetry.New(nil, s.meters, telemetry.Options{}); err != nil {
		return nil, err
	}
	if s.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s.http.Handler, s.http.ReadHeaderTimeout = mux, 10*time.Second
	go func() {
		defer close(s.served)
		_ = s.http.Serve(s.listener) // it ends when Close is called
	}()
	return s, nil
}

// URL returns the URL at which the server shows the metrics.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/metrics" }

// Measure adds the metrics to the options of a bus.
func (s *Server) Measure(o *eventbus.Options) {
	o.Observer = observer.Join(s.telemetry.Observer(), o.Observer)
	o.Middleware = append([]eventbus.Middleware{s.telemetry.Middleware}, o.Middleware...)
	o.PublishMiddleware = append([]eventbus.PublishMiddleware{s.telemetry.PublishMiddleware}, o.PublishMiddleware...)
}

// Watch adds the gauges of bus. Call it once the bus is open.
func (s *Server) Watch(bus *eventbus.Bus) (err error) {
	s.unwatch, err = s.telemetry.Watch(bus)
	return err
}

// Close ends the server. Requests in progress have one more second.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := errors.Join(s.http.Shutdown(ctx), s.http.Close())
	<-s.served
	s.unwatch()
	return errors.Join(err, s.meters.Shutdown(ctx))
}
