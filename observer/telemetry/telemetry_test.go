package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// inBubble runs f in a synctest bubble, with a recorder and a bus in memory.
func inBubble(t *testing.T, o telemetry.Options, f func(t *testing.T, r *recorder, bus *eventbus.Bus)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, o)
		bus := r.bus(inmemory.New(inmemory.Options{}))
		defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
		f(t, r, bus)
	})
}

func subscribe(t *testing.T, bus *eventbus.Bus, h eventbus.Handler) {
	t.Helper()
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
		Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2, Jitter: -1},
	}, h)
	require.NoError(t, err)
}

func succeed(context.Context, *eventbus.Delivery) error { return nil }

// Without ContinueTrace a run begins a trace of its own, and links to the creating span.
// The span of the context given to Subscribe, which ended long since, is no parent.
func TestRunsBeginTheirOwnTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		bus := r.bus(inmemory.New(inmemory.Options{}))
		ctx, span := r.tracers.Tracer("shop").Start(t.Context(), "startup")
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1"}))
		span.End()
		_, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{Group: "billing"}, succeed)
		require.NoError(t, err)
		require.Equal(t, 1, <-r.settled)
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		require.Equal(t, `publish orders [producer] messaging.message.body.size=0 messaging.message.id=o-1
startup [internal]
process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-1 messaging.message.body.size=0 eventbus.attempt=1 → publish orders
  acknowledge orders [client] messaging.consumer.group.name=billing messaging.message.id=o-1
`, r.tree())
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

// Each event of a call has a span of its own, to which its runs link. A handler's Publish is
// below its run. The acknowledgement of several events links to their runs.
func TestSeveralEventsOfOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		o, all := r.options(), observer.Settled{Topic: "orders", Group: "billing"}
		o.Observer.Settled = nil // the bus decides which events it acknowledges together
		o.Observer = observer.Join(o.Observer, observer.Observer{Handled: func(e observer.Handled) {
			all.Events++
			all.Tags = append(all.Tags, e.Tag)
		}})
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1"}, &eventbus.Event{ID: "o-2"}))
		subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			if d.ID == "o-2" {
				return bus.Publish(ctx, "bills", &eventbus.Event{ID: "b-2"})
			}
			return nil
		})
		synctest.Wait()
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		r.telemetry.Observer().Settled(all)
		require.Equal(t, `create orders [producer] messaging.message.body.size=0 messaging.message.id=o-1
create orders [producer] messaging.message.body.size=0 messaging.message.id=o-2
publish orders [client] messaging.batch.message_count=2 → create orders → create orders
process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-1 messaging.message.body.size=0 eventbus.attempt=1 → create orders
process orders [consumer] messaging.consumer.group.name=billing messaging.message.id=o-2 messaging.message.body.size=0 eventbus.attempt=1 → create orders
  publish bills [producer] messaging.message.body.size=0 messaging.message.id=b-2
acknowledge orders [client] messaging.consumer.group.name=billing messaging.batch.message_count=2 → process orders → process orders
`, r.tree())
		require.EqualValues(t, 2, r.value("messaging.client.sent.messages", attribute.String("messaging.destination.name", "orders")))
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

// Without providers there is nothing: no span, no header, no metric.
func TestNoProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, err := telemetry.New(nil, nil, telemetry.Options{})
		require.NoError(t, err)
		r := recorder{t: t, telemetry: tel, settled: make(chan int, 1)}
		bus := r.bus(inmemory.New(inmemory.Options{}))
		got := make(chan eventbus.Headers, 1)
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { got <- d.Headers; return nil })
		ctx, _ := sdktrace.NewTracerProvider().Tracer("shop").Start(t.Context(), "checkout")
		require.NoError(t, bus.Publish(ctx, "orders", &eventbus.Event{}))
		require.Empty(t, <-got)
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

// Beyond the given number event types are "_OTHER".
func TestEventTypesAreBounded(t *testing.T) {
	for most, want := range map[int]map[string]float64{
		2:  {"t0": 1, "t1": 1, "_OTHER": 3},
		-1: {"": 5},
	} {
		inBubble(t, telemetry.Options{EventTypes: most}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
			subscribe(t, bus, succeed)
			for i := range 5 {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: fmt.Sprintf("t%d", i)}))
				time.Sleep(time.Second)
			}
			got := map[string]float64{}
			for _, p := range points(r.collect()["eventbus.attempts"]) {
				kind, _ := p.set.Value("eventbus.event.type")
				got[kind.AsString()] = p.value
			}
			require.Equal(t, want, got)
		})
	}
}

// The time in the queue runs from the event's time to the start of its first run.
func TestQueueTime(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(42 * time.Second)
		snoozed := false
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			switch {
			case !snoozed:
				snoozed = true
				return eventbus.Snooze(time.Minute)
			case d.Attempt == 1:
				return io.EOF
			}
			return nil
		})
		require.Equal(t, 1, <-r.settled)
		h, ok := r.collect()["eventbus.queue.time"].Data.(metricdata.Histogram[float64])
		require.True(t, ok)
		require.Len(t, h.DataPoints, 1)
		require.EqualValues(t, 1, h.DataPoints[0].Count, "later runs do not count")
		require.InDelta(t, 42, h.DataPoints[0].Sum, 0.01)
	})
}

// The standard histograms have the boundaries of the conventions.
func TestBoundaries(t *testing.T) {
	inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
		subscribe(t, bus, succeed)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.Equal(t, 1, <-r.settled)
		all := r.collect()
		for _, name := range []string{"messaging.client.operation.duration", "messaging.process.duration"} {
			h, ok := all[name].Data.(metricdata.Histogram[float64])
			require.True(t, ok)
			require.Equal(t, []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}, h.DataPoints[0].Bounds, name)
			require.Equal(t, "s", all[name].Unit)
		}
	})
}
