package telemetry

import (
	"go.opentelemetry.io/otel"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// Install makes a Telemetry with the global providers of OpenTelemetry and the default
// [Options], and installs it in o, see [Telemetry.Install].
func Install(o *eventbus.Options) (*Telemetry, error) {
	t, err := New(otel.GetTracerProvider(), otel.GetMeterProvider(), Options{})
	if err != nil {
		return nil, err
	}
	t.Install(o)
	return t, nil
}

// Install adds the parts of t to o: its observer, beside the observer of o or the default
// one, and its middlewares, outside the middlewares of o.
func (t *Telemetry) Install(o *eventbus.Options) {
	o.Observer = observer.Join(t.Observer(), o.Effective().Observer)
	o.Middleware = append([]eventbus.Middleware{t.Middleware}, o.Middleware...)
	o.PublishMiddleware = append([]eventbus.PublishMiddleware{t.PublishMiddleware}, o.PublishMiddleware...)
}
