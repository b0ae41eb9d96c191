package telemetry

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
)

// A carrier shows a propagator the headers of an event. Names are in lower case.
type carrier struct{ headers eventbus.Headers }

var _ propagation.TextMapCarrier = (*carrier)(nil)

// Get returns a header's value.
func (c *carrier) Get(name string) string { return c.headers.Get(strings.ToLower(name)) }

// Set adds or replaces a header.
func (c *carrier) Set(name, value string) { c.headers.Set(strings.ToLower(name), value) }

// Keys lists the names of the headers.
func (c *carrier) Keys() []string {
	names := make([]string, len(c.headers))
	for i := range c.headers {
		names[i] = c.headers[i].Name
	}
	return names
}

// extract returns ctx with the baggage of an event, and the context of the span that
// created the event. That context is invalid if h has none. ctx must have no span.
func (t *Telemetry) extract(ctx context.Context, h eventbus.Headers) (context.Context, trace.SpanContext) {
	if len(h) == 0 {
		return ctx, trace.SpanContext{}
	}
	ctx = t.options.Propagator.Extract(ctx, &carrier{h})
	return ctx, trace.SpanContextFromContext(ctx)
}

// inject returns a copy of h with the context of the span of ctx. If the copy had more
// headers than Publish accepts, inject returns h itself and false.
func (t *Telemetry) inject(ctx context.Context, h eventbus.Headers) (eventbus.Headers, bool) {
	c := &carrier{append(make(eventbus.Headers, 0, len(h)+3), h...)}
	t.options.Propagator.Inject(ctx, c)
	fits := len(c.headers) <= eventbus.MaxHeaders && c.headers.Size() <= eventbus.MaxHeaderBytes
	if !fits {
		return h, false
	}
	return slices.Clip(c.headers), true
}
