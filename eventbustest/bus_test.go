package eventbustest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

func subscribe(t testing.TB, bus *eventbustest.Bus, topic string, h eventbus.Handler) {
	t.Helper()
	_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, h)
	require.NoError(t, err)
}

func TestPublishedIsWhatAHandlerReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Service: "shop"})
		var received []eventbus.Event
		subscribe(t, bus, "orders", func(_ context.Context, d *eventbus.Delivery) error {
			received = append(received, d.Event)
			return nil
		})
		full := eventbus.Event{
			ID: "1", Type: "order.placed", Source: "till", Subject: "o-1", ContentType: "text/plain", Key: "c-1",
			Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Headers: eventbus.Headers{{Name: "a", Value: "b"}}, Payload: []byte("x"),
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &full, &eventbus.Event{}))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "3"}))
		require.NoError(t, bus.WaitIdle(t.Context()))

		got := bus.Published("orders")
		require.Equal(t, received, got)
		full.Position = got[0].Position
		require.Equal(t, full, got[0])
		require.Equal(t, "shop", got[1].Source)
		require.Empty(t, bus.Published("other"))

		got[0].Payload[0], got[0].Headers[0].Value = 'y', "changed"
		require.Equal(t, full, bus.Published("orders")[0], "what is returned is the caller's")
	})
}

func TestPublishedHoldsWhatIsStoredOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.NewWith(t, eventbus.Options{Dedup: true})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.Error(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "2", Headers: eventbus.Headers{{}}}))
		require.Len(t, bus.Published("orders"), 1)
	})
}

func TestWaitIdleWaitsForRetriesAndDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		runs := 0
		subscribe(t, bus, "orders", func(context.Context, *eventbus.Delivery) error { runs++; return errors.New("no") })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 12, runs, "all attempts, half an hour of them")
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "exhausted", dead[0].Headers.Get("eventbus-dead-reason"))
	})
}

func TestWaitIdleSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		subscribe(t, bus, "orders", func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "later" {
				return eventbus.Snooze(time.Hour)
			}
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{ID: "later"}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := bus.WaitIdle(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "orders/g with 1 members: 0 never received, 0 held, 1 delayed")
	})
}

func TestWorksOnTheRealClock(t *testing.T) {
	bus := eventbustest.New(t)
	subscribe(t, bus, "orders", func(context.Context, *eventbus.Delivery) error { return nil })
	for i := range 1000 {
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: fmt.Sprint(i)}))
	}
	require.NoError(t, bus.WaitIdle(t.Context()))
	require.Len(t, bus.Published("orders"), 1000)
}

func TestTheInMemoryBackendCanBeFound(t *testing.T) {
	bus := eventbustest.New(t)
	_, ok := backend.As[*inmemory.Backend](bus.Backend())
	require.True(t, ok)
}

func TestTheEndOfATest(t *testing.T) {
	for _, row := range []struct {
		name    string
		handler eventbus.Handler
		itself  bool // the test shuts the bus down itself
		failure string
		logged  string
	}{
		{name: "clean", handler: func(context.Context, *eventbus.Delivery) error { return nil }},
		{
			name: "a handler that does not return", failure: "orders/g: handlers still running: 1",
			handler: func(context.Context, *eventbus.Delivery) error { time.Sleep(time.Hour); return nil },
		},
		{
			name: "shut down by the test", itself: true,
			handler: func(context.Context, *eventbus.Delivery) error { time.Sleep(time.Hour); return nil },
		},
		{
			name: "a panic is logged", logged: "boom",
			handler: func(context.Context, *eventbus.Delivery) error { panic("boom") },
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &fakeTest{TB: t}
				bus := eventbustest.New(inner)
				subscribe(t, bus, "orders", row.handler)
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
				synctest.Wait()
				if row.itself {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					require.Error(t, bus.Shutdown(ctx))
				}
				inner.end()
				if row.failure == "" {
					require.Empty(t, inner.errors)
				} else {
					require.Len(t, inner.errors, 1)
					require.Contains(t, inner.errors[0], row.failure)
				}
				require.Contains(t, strings.Join(inner.logs, "\n"), row.logged)
				require.ErrorIs(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}), eventbus.ErrClosed)
				time.Sleep(2 * time.Hour) // the stuck handler returns, and must not log
			})
		})
	}
}

// A fakeTest ends when its end method is called.
type fakeTest struct {
	testing.TB
	cleanups     []func()
	errors, logs []string
	ended        bool
}

func (f *fakeTest) Cleanup(c func())          { f.cleanups = append(f.cleanups, c) }
func (f *fakeTest) Errorf(s string, a ...any) { f.errors = append(f.errors, fmt.Sprintf(s, a...)) }
func (f *fakeTest) Log(a ...any) {
	if f.ended {
		f.TB.Error("logged after its end")
	}
	f.logs = append(f.logs, fmt.Sprint(a...))
}

func (f *fakeTest) end() {
	for _, c := range f.cleanups {
		c()
	}
	f.ended = true
}

// The caller may change the rule of an event that Published has returned.
func TestPublishedRulesAreCopies(t *testing.T) {
	bus := eventbustest.New(t)
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Retry: &eventbus.RetryRule{MaxAttempts: 3}}))
	bus.Published("orders")[0].Retry.MaxAttempts = 7
	require.Equal(t, 3, bus.Published("orders")[0].Retry.MaxAttempts)
}
