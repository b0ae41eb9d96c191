package bus_test

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

func succeed(context.Context, *eventbus.Delivery) error { return nil }

func pass(h eventbus.Handler) eventbus.Handler { return h }

// isOf requires a *FieldError of that field.
func isOf(t *testing.T, field string, err error) {
	t.Helper()
	var f *eventbus.FieldError
	require.ErrorAs(t, err, &f, "want a FieldError of %s", field)
	require.Equal(t, field, f.Field)
}

// A nil argument is refused by name at once.
func TestNilIsRefusedByName(t *testing.T) {
	type o = eventbus.Options
	var none eventbus.Middleware
	for field, on := range map[string]struct {
		backend backend.Backend
		options o
	}{
		"backend":                      {nil, o{}},
		"Options.Middleware[1]":        {inmemory.New(inmemory.Options{}), o{Middleware: []eventbus.Middleware{pass, none}}},
		"Options.PublishMiddleware[0]": {inmemory.New(inmemory.Options{}), o{PublishMiddleware: []eventbus.PublishMiddleware{nil}}},
	} {
		bus, err := eventbus.New(on.backend, on.options)
		isOf(t, field, err)
		require.Nil(t, bus)
	}
}

// A middleware that returns nil is refused too.
func TestMiddlewareThatReturnsNilIsRefused(t *testing.T) {
	nothing := func(eventbus.Handler) eventbus.Handler { return nil }
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Middleware: []eventbus.Middleware{
		func(h eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error { return h(ctx, d) }
		}, nothing, pass,
	}})
	_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, succeed)
	isOf(t, "Options.Middleware[1]", err)
	require.NoError(t, bus.Shutdown(t.Context()))

	_, err = eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{PublishMiddleware: []eventbus.PublishMiddleware{
		func(eventbus.Publisher) eventbus.Publisher { return nil },
	}})
	isOf(t, "Options.PublishMiddleware[0]", err)
}

func TestNilHandlersAreRefused(t *testing.T) {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
	for _, h := range []eventbus.Handler{nil, eventbus.Topic[int]{Name: "t"}.Handler(nil)} {
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, h)
		isOf(t, "handler", err)
	}
	_, err := bus.SubscribeManual(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, nil)
	isOf(t, "handler", err)
	require.NoError(t, bus.Shutdown(t.Context()))
}

// A careless driver returns no backend and no error.
type careless struct{}

func (careless) Schemes() []string                                       { return []string{"none"} }
func (careless) Open(context.Context, *url.URL) (backend.Backend, error) { return nil, nil } //nolint:nilnil // the point

func TestOpenRefusesNil(t *testing.T) {
	_, err := eventbus.Open(t.Context(), "mem:", eventbus.Options{}, inmemory.Driver{}, nil)
	isOf(t, "drivers[1]", err)
	_, err = eventbus.Open(t.Context(), "none:", eventbus.Options{}, careless{})
	isOf(t, "backend", err)
}

// A backend stays with the caller when the options are refused.
func TestRefusedOptionsLeaveTheBackend(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	_, err := eventbus.New(b, eventbus.Options{MaxPending: -1})
	isOf(t, "Options.MaxPending", err)
	require.NoError(t, b.Ping(t.Context()))
}

// Run returns only after a Shutdown by another goroutine has ended.
func TestRunEndsWithShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		const work = 40 * time.Second // longer than the DrainTimeout of Run
		began := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
			close(began)
			time.Sleep(work)
			return nil
		})
		require.NoError(t, err)
		ran := make(chan error, 1)
		go func() { ran <- bus.Run(t.Context()) }()
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		<-began
		start := time.Now()
		shut := make(chan error, 1)
		go func() { shut <- bus.Shutdown(t.Context()) }()
		select {
		case err := <-ran:
			require.NoError(t, err)
		case <-time.After(time.Hour):
			t.Fatal("Run has not returned")
		}
		require.Equal(t, work, time.Since(start))
		require.NoError(t, <-shut)
		require.NoError(t, bus.Run(t.Context()), "of a bus that is shut down")
	})
}
