package telemetry_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/store"
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

// Install uses the global providers, and keeps the observer and the middlewares of the
// options.
func TestInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
		t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
		handled, wrapped := 0, 0
		o := eventbus.Options{
			Observer: observer.Observer{Handled: func(observer.Handled) { handled++ }},
			Middleware: []eventbus.Middleware{func(next eventbus.Handler) eventbus.Handler {
				return func(ctx context.Context, d *eventbus.Delivery) error { wrapped++; return next(ctx, d) }
			}},
		}
		_, err := telemetry.Install(&o)
		require.NoError(t, err)
		bus := eventbustest.NewWith(t, o)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"},
			func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, []int{1, 1}, []int{handled, wrapped})
		var names []string
		for _, s := range spans.Ended() {
			names = append(names, s.Name())
		}
		require.ElementsMatch(t, []string{"publish orders", "process orders", "acknowledge orders"}, names)
	})
}

// A nilError is an error whose methods panic for a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// The span of a run ends, whatever the handler does, and its status never names a cause
// that telemetry does not know.
func TestSpansOfBrokenRunsEnd(t *testing.T) {
	for name, handler := range map[string]eventbus.Handler{
		"returns a nil pointer as error": func(context.Context, *eventbus.Delivery) error { return (*nilError)(nil) },
		"panics":                         func(context.Context, *eventbus.Delivery) error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, telemetry.Options{}, func(t *testing.T, r *recorder, bus *eventbus.Bus) {
				subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
					if d.Attempt == 1 {
						return handler(ctx, d)
					}
					return nil
				})
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1"}))
				<-r.settled
				synctest.Wait()
				require.Len(t, r.spans.Ended(), len(r.spans.Started()), r.tree())
				require.NotContains(t, r.span("process", 0).Status().Description, "Goexit")
			})
		})
	}
}

// An event that middleware keeps from the handler is not measured as a run.
func TestDuplicatesAreNoRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t, telemetry.Options{})
		o := r.options()
		o.Middleware = append(o.Middleware, middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{}))
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		require.NoError(t, err)
		subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { return nil })
		for range 3 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1"}))
			synctest.Wait()
		}
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
		require.Equal(t, 1.0, r.value("eventbus.attempts"))
		require.Equal(t, 1.0, r.value("messaging.process.duration"))
	})
}
