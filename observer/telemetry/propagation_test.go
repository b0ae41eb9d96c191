package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// The carriers of other programs write "Traceparent", which is found. Headers of another
// spelling are replaced, so that an event never has two contexts.
func TestHeadersInAnyCase(t *testing.T) {
	inBubble(t, telemetry.Options{ContinueTrace: true}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		const carried = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d.Headers; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: "Traceparent", Value: carried}}}))
		require.Equal(t, eventbus.Headers{{Name: "Traceparent", Value: carried}}, <-got, "the event was created before")
		<-r.settled
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", r.span("process", 0).SpanContext().TraceID().String())

		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: eventbus.Headers{{Name: "TraceParent", Value: "nonsense"}, {Name: "Tenant", Value: "blue"}}}))
		headers := <-got
		require.Len(t, headers, 2)
		require.Equal(t, eventbus.Header{Name: "Tenant", Value: "blue"}, headers[0])
		require.Equal(t, "traceparent", headers[1].Name)
		require.Contains(t, headers[1].Value, "00-")
	})
}

// A loud propagator writes its header in capitals, as some do.
type loud struct{ propagation.TraceContext }

func (l loud) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	c.Set("X-Trace", trace.SpanContextFromContext(ctx).TraceID().String())
}

func (l loud) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	id, err := trace.TraceIDFromHex(c.Get("X-Trace"))
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
}

// The context travels in the headers of the given propagator, in lower case.
func TestPropagator(t *testing.T) {
	inBubble(t, telemetry.Options{Propagator: loud{}, ContinueTrace: true}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d.Headers; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		h := <-got
		require.Len(t, h, 1)
		require.Equal(t, "x-trace", h[0].Name)
		require.Equal(t, 1, <-r.settled)
		require.Equal(t, h[0].Value, r.span("process", 0).SpanContext().TraceID().String())
	})
}

// A context that an event carries already stays: the event was created before. An event's
// headers are its own again after Publish, and the slice that others share is not written to.
func TestACarriedContextStays(t *testing.T) {
	inBubble(t, telemetry.Options{ContinueTrace: true}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		const carried = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		got := make(chan *eventbus.Delivery, 2)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d; return nil })
		shared := make(eventbus.Headers, 1, 8)
		shared[0] = eventbus.Header{Name: "tenant", Value: "blue"}
		events := []*eventbus.Event{
			{ID: "o-1", Headers: eventbus.Headers{{Name: "traceparent", Value: carried}}},
			{ID: "o-2", Headers: shared},
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", events[0]))
		require.Equal(t, carried, (<-got).Headers.Get("traceparent"), "a single event")
		sent := r.span("publish", 0)
		require.Equal(t, trace.SpanKindClient, sent.SpanKind(), "it creates nothing")
		require.Equal(t, "b7ad6b7169203331", sent.Links()[0].SpanContext.SpanID().String())
		require.NoError(t, bus.Publish(t.Context(), "orders", events...))
		first, second := <-got, <-got
		require.Equal(t, carried, first.Headers.Get("traceparent"))
		require.NotEqual(t, carried, second.Headers.Get("traceparent"))
		require.Equal(t, "blue", second.Headers.Get("tenant"))
		require.Equal(t, shared, events[1].Headers)
		require.Equal(t, make(eventbus.Headers, 7), shared[:8][1:], "behind the slice's end")
		for _, s := range r.spans.Ended() {
			if s.Name() == "process orders" && s.Links()[0].SpanContext.SpanID().String() == "b7ad6b7169203331" {
				require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.SpanContext().TraceID().String())
				return
			}
		}
		require.Fail(t, "no run links to the carried context", r.tree())
	})
}

// Baggage reaches the handler. Header names are in lower case.
func TestBaggage(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, _ *recorder, bus *eventbus.Bus) {
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			require.Equal(t, "blue", baggage.FromContext(ctx).Member("tenant").Value())
			got <- d.Headers
			return nil
		})
		member, err := baggage.NewMember("tenant", "blue")
		require.NoError(t, err)
		bag, err := baggage.New(member)
		require.NoError(t, err)
		require.NoError(t, bus.Publish(baggage.ContextWithBaggage(t.Context(), bag), "orders", &eventbus.Event{}))
		for _, h := range <-got {
			require.Contains(t, []string{"traceparent", "baggage"}, h.Name)
		}
	})
}

// An event whose headers are full is published all the same.
func TestFullHeaders(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		full := &eventbus.Event{}
		for i := range eventbus.MaxHeaders {
			full.Headers.Set(fmt.Sprintf("h%d", i), "x")
		}
		large := &eventbus.Event{Headers: eventbus.Headers{{Name: "h", Value: strings.Repeat("x", eventbus.MaxHeaderBytes-10)}}}
		require.NoError(t, bus.Publish(t.Context(), "orders", full))
		require.NoError(t, bus.Publish(t.Context(), "orders", large))
		require.Equal(t, 2, strings.Count(r.tree(), "eventbus.context.omitted=true"), r.tree())
	})
}

// An event without a context, such as one of another program, has no link. The span of the
// context given to Subscribe does not stand in for its creator.
func TestAnEventWithoutAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{ContinueTrace: true})
		o := r.options()
		o.PublishMiddleware = nil
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		require.NoError(t, err)
		ctx, span := r.tracers.Tracer("shop").Start(t.Context(), "startup")
		_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"}, succeed)
		require.NoError(t, err)
		for _, h := range []eventbus.Headers{nil, {{Name: "tenant", Value: "blue"}}, {{Name: "traceparent", Value: "nonsense"}}} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Headers: h}))
		}
		for settled := 0; settled < 3; {
			settled += <-r.settled
		}
		span.End()
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		for i := range 3 {
			require.Empty(t, r.span("process", i).Links())
			require.False(t, r.span("process", i).Parent().IsValid())
		}
	})
}

// After Publish an event has its own headers again, even if later middleware published
// copies in its place.
func TestCopiedEventsGetTheirHeadersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		o := r.options()
		o.PublishMiddleware = append(o.PublishMiddleware, func(next eventbus.Publisher) eventbus.Publisher {
			return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
				for i, e := range events {
					c := *e
					events[i] = &c
				}
				return next.Publish(ctx, topic, events...)
			})
		})
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		require.NoError(t, err)
		e := &eventbus.Event{ID: "o-1"}
		require.NoError(t, bus.Publish(t.Context(), "orders", e))
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		require.Empty(t, e.Headers)
	})
}
