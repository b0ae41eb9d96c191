package telemetry

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
)

// A carrier lets a propagator read and write the headers of an event. It reads names in any letter
// case, because other programs write "Traceparent". It writes names in lower case, and removes
// other spellings of them.
type carrier struct{ headers eventbus.Headers }

var _ propagation.TextMapCarrier = (*carrier)(nil)

// Get returns the value of the header name, preferring the lower-case name if there are several.
func (c *carrier) Get(name string) string {
	lower := strings.ToLower(name)
	value, found := "", false
	for i := range c.headers {
		switch h := &c.headers[i]; {
		case h.Name == lower:
			return h.Value
		case !found && isSpelling(h.Name, lower):
			value, found = h.Value, true
		}
	}
	return value
}

// Set adds the header name, or replaces its value.
func (c *carrier) Set(name, value string) {
	lower := strings.ToLower(name)
	c.headers = slices.DeleteFunc(c.headers, func(h eventbus.Header) bool { return h.Name != lower && isSpelling(h.Name, lower) })
	c.headers.Set(lower, value)
}

func isSpelling(name, lower string) bool {
	return len(name) == len(lower) && strings.EqualFold(name, lower)
}

// Keys lists the names of the headers.
func (c *carrier) Keys() []string {
	names := make([]string, len(c.headers))
	for i := range c.headers {
		names[i] = c.headers[i].Name
	}
	return names
}

// extract reads the headers h of an event. It returns ctx with their baggage, and the context of
// the span that created the event, which is invalid if h has none. ctx must not have a span.
func (t *Telemetry) extract(ctx context.Context, h eventbus.Headers) (context.Context, trace.SpanContext) {
	if len(h) == 0 {
		return ctx, trace.SpanContext{}
	}
	ctx = t.options.Propagator.Extract(ctx, &carrier{h})
	return ctx, trace.SpanContextFromContext(ctx)
}

// inject returns a copy of h with the context of the span in ctx. If the copy would exceed what
// Publish accepts, inject returns h itself and false.
func (t *Telemetry) inject(ctx context.Context, h eventbus.Headers) (eventbus.Headers, bool) {
	c := &carrier{append(make(eventbus.Headers, 0, len(h)+3), h...)}
	t.options.Propagator.Inject(ctx, c)
	fits := len(c.headers) <= eventbus.MaxHeaders && c.headers.Size() <= eventbus.MaxHeaderBytes
	if !fits {
		return h, false
	}
	return slices.Clip(c.headers), true
}
