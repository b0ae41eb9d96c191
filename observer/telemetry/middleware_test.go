package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/store"
)

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
