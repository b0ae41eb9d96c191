package telemetry

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
)

// A carrier lets a propagator read and write the headers of an event. It turns header names
// into lower case.
type carrier struct{ headers eventbus.Headers }

var _ propagation.TextMapCarrier = (*carrier)(nil)

// Get returns the value of the header name.
func (c *carrier) Get(name string) string { return c.headers.Get(strings.ToLower(name)) }

// Set adds the header name, or replaces its value.
func (c *carrier) Set(name, value string) { c.headers.Set(strings.ToLower(name), value) }

// Keys lists the names of the headers.
func (c *carrier) Keys() []string {
	names := make([]string, len(c.headers))
	for i := range c.headers {
		names[i] = c.headers[i].Name
	}
	return names
}

// extract returns ctx with the baggage in the headers h of an event, and the context of the
// span that created the event. If h has no such context, the second result is invalid. ctx
// must have no span.
func (t *Telemetry) extract(ctx context.Context, h eventbus.Headers) (context.Context, trace.SpanContext) {
	if len(h) == 0 {
		return ctx, trace.SpanContext{}
	}
	ctx = t.options.Propagator.Extract(ctx, &carrier{h})
	return ctx, trace.SpanContextFromContext(ctx)
}

// inject returns a copy of h to which the context of the span of ctx is added. If the copy
// would have more headers than Publish accepts, inject returns h itself and false.
func (t *Telemetry) inject(ctx context.Context, h eventbus.Headers) (eventbus.Headers, bool) {
	c := &carrier{append(make(eventbus.Headers, 0, len(h)+3), h...)}
	t.options.Propagator.Inject(ctx, c)
	fits := len(c.headers) <= eventbus.MaxHeaders && c.headers.Size() <= eventbus.MaxHeaderBytes
	if !fits {
		return h, false
	}
	return slices.Clip(c.headers), true
}
