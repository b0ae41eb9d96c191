package bus_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A stub is a server whose ListenAndServe returns the value of result.
type stub struct {
	result   chan error
	shutdown func(ctx context.Context) error
}

func (s *stub) ListenAndServe() error { return <-s.result }

func (s *stub) Shutdown(ctx context.Context) error {
	s.result <- http.ErrServerClosed
	return s.shutdown(ctx)
}

func TestServeEndsServersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		s := &stub{result: make(chan error, 1), shutdown: func(ctx context.Context) error {
			return bus.Publish(ctx, "orders", &eventbus.Event{}) // as a request in flight does
		}}
		ctx, terminate := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, terminate)
		start := time.Now()
		require.NoError(t, bus.Serve(ctx, s))
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}), eventbus.ErrClosed)
	})
}

func TestServeReturnsTheFailureOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, late := errors.New("address in use"), errors.New("requests are left")
		bad := &stub{result: make(chan error, 2), shutdown: func(context.Context) error { return nil }}
		good := &stub{result: make(chan error, 1), shutdown: func(ctx context.Context) error {
			<-ctx.Done()
			return late
		}}
		bad.result <- broken
		start := time.Now()
		err := eventbustest.New(t).Serve(t.Context(), good, bad)
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, err, late)
		require.Equal(t, 5*time.Second, time.Since(start), "DrainTimeout of eventbustest bounds the servers")
	})
}

func TestServeReturnsAfterAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		s := &stub{result: make(chan error, 1), shutdown: func(context.Context) error { return nil }}
		time.AfterFunc(time.Second, func() { _ = bus.Shutdown(t.Context()) })
		require.NoError(t, bus.Serve(t.Context(), s))
	})
}

// A handler cannot wait for itself.
func TestShutdownInAHandlerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, other := eventbustest.New(t), eventbustest.New(t)
		errs := make(chan error, 4)
		handlerCtx := make(chan context.Context, 1)
		var sub *eventbus.Subscription
		subscribed := make(chan struct{})
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(ctx context.Context, _ *eventbus.Delivery) error {
				<-subscribed
				derived, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				errs <- bus.Shutdown(derived)
				errs <- sub.Drain(ctx)
				errs <- other.Shutdown(ctx)
				handlerCtx <- ctx
				return nil
			})
		require.NoError(t, err)
		close(subscribed)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.ErrorIs(t, <-errs, eventbus.ErrInHandler)
		require.ErrorIs(t, <-errs, eventbus.ErrInHandler)
		require.NoError(t, <-errs, "another bus does not wait for this handler")
		require.NoError(t, bus.Shutdown(context.WithoutCancel(<-handlerCtx)), "the handler has returned")
	})
}

// The memory backend forgets all events, and says so.
func TestShutdownTellsWhatMemoryLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notices []observer.Noticed
		bus := eventbustest.NewWith(t, eventbus.Options{Observer: observer.Observer{Noticed: func(n observer.Noticed) { notices = append(notices, n) }}})
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		s.Pause()
		synctest.Wait()
		for range 100 {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		}
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Len(t, notices, 1)
		require.Equal(t, "orders/billing", notices[0].Topic+"/"+notices[0].Group)
		require.Contains(t, notices[0].Text, "events that the group has not settled are lost, because the memory backend is closed")
	})
}

// A starting driver cannot reach its broker before a moment.
type starting struct {
	inmemory.Driver
	until time.Time
	err   error
}

func (s starting) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	if time.Now().Before(s.until) {
		return nil, s.err
	}
	return s.Driver.Open(ctx, u)
}

func TestOpenWaitsForItsBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []observer.Failed
		watch := observer.Observer{Failed: func(f observer.Failed) { told = append(told, f) }}
		start := time.Now()
		open := func(after, timeout time.Duration, err error) error {
			told, start = nil, time.Now()
			bus, err := eventbus.Open(t.Context(), "mem:", eventbus.Options{Observer: watch, OpenTimeout: timeout},
				starting{until: time.Now().Add(after), err: err})
			if err == nil {
				err = bus.Shutdown(t.Context())
			}
			return err
		}
		require.NoError(t, open(3500*time.Millisecond, 10*time.Second, backend.ErrUnavailable))
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Len(t, told, 4, "one line each second")
		require.Equal(t, observer.Open, told[0].Scope)
		require.ErrorIs(t, told[0].Err, backend.ErrUnavailable)

		require.ErrorIs(t, open(time.Hour, 10*time.Second, backend.ErrUnavailable), backend.ErrUnavailable)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.ErrorIs(t, open(time.Hour, 10*time.Second, backend.ErrDenied), backend.ErrDenied, "a wait does not help")
		require.Equal(t, time.Duration(0), time.Since(start))
		require.ErrorIs(t, open(time.Hour, 0, backend.ErrUnavailable), backend.ErrUnavailable)
		require.Equal(t, time.Duration(0), time.Since(start))
	})
}

type deafBackend struct{ backend.Backend }

func (b deafBackend) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return deafSource{s}, err
}

type deafSource struct{ backend.Source }

func (s deafSource) Unwrap() backend.Source { return s.Source }

func (s deafSource) Ack(context.Context, []*backend.Delivery) error { return backend.ErrUnavailable }

func TestADrainSaysWhatItCouldNotAcknowledge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, deafBackend{inmemory.New(inmemory.Options{})}, eventbus.Options{})
		handled := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"},
			func(context.Context, *eventbus.Delivery) error { close(handled); return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		<-handled
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var d *eventbus.DrainError
		require.ErrorAs(t, bus.Shutdown(ctx), &d)
		require.Equal(t, 1, d.Abandoned[0].Unsettled)
	})
}

// The end of the bus is the last thing that the observer hears of, even if Shutdown's context
// has ended.
func TestTheObserverIsToldOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last string
		bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{
			Settled:      func(observer.Settled) { last = "settled" },
			StateChanged: func(e observer.StateChanged) { last = string(e.To) },
			Stopped:      func(e observer.Stopped) { last += ", stopped"; require.NoError(t, e.Err) },
		}})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for range 5000 { // more than wait for the observer
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = bus.Shutdown(ctx) // an error about events is allowed
		require.Equal(t, "closed, stopped", last)
	})
}
