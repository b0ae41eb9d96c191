// Package bus_test tests the bus through its public API, mostly on package inmemory.
package bus_test

import (
	"context"
	"errors"
	"fmt"
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

// driver serves one scheme and cannot open any URL.
type driver struct{ scheme string }

func (d driver) Schemes() []string { return []string{d.scheme} }

func (d driver) Open(context.Context, *url.URL) (backend.Backend, error) {
	return nil, fmt.Errorf("%s: dial: connection refused: %w", d.scheme, backend.ErrUnavailable)
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "eventbus: url has no scheme, such as mem:"},
		{"redis://:secret@host", `eventbus: url has the scheme "redis", which no driver given to Open serves: add redisstream.Driver{}`},
		{"localhost:6379", "eventbus: url has no scheme, such as redis: in redis://HOST:PORT"},
		{"127.0.0.1:4222", "eventbus: url has no scheme, such as redis: in redis://HOST:PORT"},
		{"meme:", `eventbus: url has the scheme "meme", which no driver given to Open serves; did you mean mem:?`},
		{"mem:?max_mesages=5", `eventbus: open mem: inmemory: open: unknown parameter "max_mesages"; did you mean "max_messages"?`},
		{"fake://u:secret@h", "eventbus: open fake: fake: dial: connection refused: unavailable"},
		{"redis://u:secret@h:port", "eventbus: url cannot be parsed: invalid port"},
		{"redis://u:sec/ret@h:6379", "eventbus: url cannot be parsed: invalid port; in a password / is written %2F, ? is written %3F, and # is written %23"},
	} {
		_, err := eventbus.Open(t.Context(), c.url, eventbus.Options{}, inmemory.Driver{}, driver{"fake"})
		require.EqualError(t, err, c.want)
		require.NotContains(t, fmt.Sprintf("%+v", err), "secret")
	}
	_, err := eventbus.Open(t.Context(), "redis://:secret@host", eventbus.Options{})
	require.EqualError(t, err, `eventbus: url has the scheme "redis", and no driver was given: add redisstream.Driver{}`)
	_, err = eventbus.Open(t.Context(), "mem:?once_window=0s", eventbus.Options{MaxPending: -1}, inmemory.Driver{})
	require.Error(t, err)
}

// An error names the call and the place once.
func TestErrorSaysPlaceOnce(t *testing.T) {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{MaxMessages: 1}), eventbus.Options{})
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	require.NoError(t, bus.Publish(t.Context(), "shop.orders", &eventbus.Event{}))
	require.EqualError(t, bus.Publish(t.Context(), "shop.orders", &eventbus.Event{}), "eventbus: publish shop.orders: inmemory: full")
}

func TestRefusedCalls(t *testing.T) {
	bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	var f *eventbus.FieldError
	_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, nil)
	require.ErrorAs(t, err, &f)
	require.Equal(t, "handler", f.Field)
	_, err = bus.SubscribeManual(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, nil)
	require.ErrorAs(t, err, &f)
	_, err = bus.SubscribeManual(t.Context(), "t", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive},
		func(context.Context, *eventbus.ManualDelivery) error { return nil })
	require.ErrorAs(t, err, &f)
	require.Equal(t, "SubscribeOptions.Ack", f.Field)
	require.ErrorAs(t, bus.Publish(t.Context(), "t", nil), &f)
	require.Equal(t, "events[0]", f.Field)
	require.NoError(t, bus.Publish(t.Context(), "t"), "publishing nothing is not an error")
}

// Run ends with its context, without an error, after a drain.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		finished := false
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
			time.Sleep(10 * time.Second)
			finished = true
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, bus.Run(ctx))
		require.True(t, finished)
		require.ErrorIs(t, bus.Ready(t.Context()), eventbus.ErrClosed)
	})
}

// Run bounds the drain by DrainTimeout, and reports the handlers that still run.
func TestRunDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{DrainTimeout: 3 * time.Second})
		release := make(chan struct{})
		_, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error {
			<-release
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err = bus.Run(ctx)
		require.Equal(t, 5*time.Second, time.Since(start), "one until the end, three to drain, one more")
		var d *eventbus.DrainError
		require.ErrorAs(t, err, &d)
		require.Equal(t, []eventbus.Abandoned{{Topic: "t", Group: "g", Handlers: 1}}, d.Abandoned)
		close(release)
	})
}

// Run ends when a subscription fails for good.
func TestRunFailedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, mem, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		s, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		require.NoError(t, bus.Ready(t.Context()))
		require.NoError(t, mem.Close()) // past the bus, which is not told
		<-s.Done()
		require.ErrorIs(t, s.Err(), eventbus.ErrClosed)
		err = bus.Run(t.Context())
		require.ErrorIs(t, err, eventbus.ErrClosed)
		require.ErrorContains(t, err, "t/g")
		require.ErrorIs(t, s.Err(), eventbus.ErrClosed, "the drain does not hide it")
		state, _ := s.State()
		require.Equal(t, observer.Closed, state)
	})
}

// Retry.Delay sees which event has failed, how often, and with which error.
func TestDelaySeesEventAndError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		broken := errors.New("broken")
		start, runs := time.Now(), []time.Duration{}
		o := eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Delay: func(d *eventbus.Delivery, err error) time.Duration {
			require.ErrorIs(t, err, broken)
			require.Equal(t, "order.placed", d.Type)
			return time.Duration(d.Attempt) * time.Minute
		}}}
		_, err := bus.Subscribe(t.Context(), "t", o, func(_ context.Context, d *eventbus.Delivery) error {
			runs = append(runs, time.Since(start).Round(time.Second))
			if d.Attempt < 3 {
				return fmt.Errorf("run %d: %w", d.Attempt, broken)
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{Type: "order.placed"}))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, time.Minute, 3 * time.Minute}, runs)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// A Topic encodes and decodes values. An event that it cannot decode is dead-lettered.
func TestTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type order struct {
			Customer string
			Items    int
		}
		orders := eventbus.Topic[order]{Name: "orders", Type: "order.placed", Key: func(o order) string { return o.Customer }}
		mem := inmemory.New(inmemory.Options{})
		var dead []observer.DeadLettered
		bus := eventbustest.On(t, mem, eventbus.Options{Observer: observer.Observer{
			DeadLettered: func(d observer.DeadLettered) { dead = append(dead, d) },
		}})
		var got []order
		_, err := orders.Subscribe(t.Context(), bus, eventbus.SubscribeOptions{Group: "g"},
			func(_ context.Context, o order, d *eventbus.Delivery) error {
				got = append(got, o)
				require.Equal(t, "application/json", d.ContentType)
				require.Equal(t, o.Customer, d.Key)
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, orders.Publish(t.Context(), bus, order{"ann", 1}, order{"bob", 2}))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Type: "order.placed", Payload: []byte("{")}))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "other", Type: "order.paid", Payload: []byte("{}")}))
		require.NoError(t, mem.WaitSettled(t.Context()))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, []order{{"ann", 1}, {"bob", 2}}, got)
		require.Len(t, dead, 2)
		require.Equal(t, []string{"permanent", "permanent"}, []string{dead[0].Reason, dead[1].Reason})

		bad := eventbus.Topic[func()]{Name: "orders"}
		require.ErrorContains(t, bad.Publish(t.Context(), bus, func() {}), "encode for orders")
	})
}

// Middleware wraps handlers, and publishing, the first outermost.
func TestMiddlewareOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []string
		around := func(name string) eventbus.Middleware {
			return func(next eventbus.Handler) eventbus.Handler {
				return func(ctx context.Context, d *eventbus.Delivery) error {
					steps = append(steps, name)
					return next(ctx, d)
				}
			}
		}
		publishing := func(name string) eventbus.PublishMiddleware {
			return func(next eventbus.Publisher) eventbus.Publisher {
				return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
					steps = append(steps, name)
					return next.Publish(ctx, topic, events...)
				})
			}
		}
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, mem, eventbus.Options{
			Middleware:        []eventbus.Middleware{around("a"), around("b")},
			PublishMiddleware: []eventbus.PublishMiddleware{publishing("1"), publishing("2")},
		})
		_, err := bus.SubscribeManual(t.Context(), "t", eventbus.SubscribeOptions{Group: "manual"}, func(ctx context.Context, d *eventbus.ManualDelivery) error {
			steps = append(steps, "manual")
			go func() { _ = d.Ack(ctx) }()
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		require.NoError(t, mem.WaitSettled(t.Context()))
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, []string{"1", "2", "a", "b", "manual"}, steps)
	})
}

func TestErrorsSayWhere(t *testing.T) {
	err := &eventbus.Error{Op: "subscribe", Topic: "orders", Group: "g", Err: errors.New("eventbus: broken")}
	require.EqualError(t, err, "eventbus: subscribe orders/g: broken")
	require.EqualError(t, &eventbus.PublishError{Topic: "orders", Errors: []error{nil, eventbus.ErrFull}}, "eventbus: publish orders: 1 of 2 failed, first: full")
	require.EqualError(t, &eventbus.DrainError{Abandoned: []eventbus.Abandoned{{Topic: "t", Group: "g", Handlers: 1, Unsettled: 2}}},
		"eventbus: drain: t/g: handlers still running: 1, events unsettled: 2")
}

// A time that RFC 3339 has no text for is refused, because no handler could read it.
func TestTimesBeyondTheCalendar(t *testing.T) {
	bus := eventbustest.New(t)
	for at, ok := range map[time.Time]bool{
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC): true,
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC):               false,
		time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC):                   true,
		time.Date(-1, 12, 31, 23, 59, 59, 0, time.UTC):             false,
	} {
		err := bus.Publish(t.Context(), "orders", &eventbus.Event{Time: at})
		if ok {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "events[0].Time plus TTL is outside the years 0 to 9999")
		}
	}
}

// An event that would expire after the year 9999 is refused, even if only the fractions of a
// second in its Time and TTL together reach that year. Its expiry time would not be readable.
func TestAnExpiryBeyondTheCalendar(t *testing.T) {
	bus := eventbustest.New(t)
	last := time.Date(9999, 12, 31, 23, 59, 59, 900_000_000, time.UTC)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Time: last, TTL: 99 * time.Millisecond}))
	require.Equal(t, 99*time.Millisecond, bus.Published("orders")[0].TTL)
	err := bus.Publish(t.Context(), "orders", &eventbus.Event{Time: last, TTL: 100 * time.Millisecond})
	require.ErrorContains(t, err, "events[0].Time plus TTL is outside the years 0 to 9999")
}

// All hooks but Published and Handled run on one goroutine, even after a hook has panicked.
func TestAPanicOfAHookIsToldInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := 0
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{
			Handled: func(observer.Handled) { panic("hook") },
			Failed:  func(observer.Failed) { failed++ },
		}})
		o := eventbus.SubscribeOptions{Group: "g", Concurrency: 8, Order: eventbus.Unordered}
		_, err := bus.Subscribe(t.Context(), "orders", o, func(context.Context, *eventbus.Delivery) error { return nil })
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, bus.Publish(t.Context(), "orders", numbered(4)...))
		}
		synctest.Wait()
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, 400, failed)
	})
}

// Buses share no pooled channels or timers, because a channel of one synctest bubble is
// fatal in another.
func TestBusesInDifferentBubblesShareNothing(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
			require.NoError(t, bus.Shutdown(t.Context()))
		})
	}
}
