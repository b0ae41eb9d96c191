package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/limiter/rate"
	"github.com/seed41896749/eventbus/observer"
)

// slowly is a backend that takes a minute to store, one call at a time.
type slowly struct{ *inmemory.Backend }

func (s *slowly) Limits() backend.Limits { return backend.Limits{Publishers: 1} }

func (s *slowly) Publish(ctx context.Context, msgs []*backend.Message) error {
	time.Sleep(time.Minute)
	return s.Backend.Publish(ctx, msgs)
}

// Each dropped event is counted and reported to the observer. The error of its call says
// that it was dropped and not stored.
func TestDropsAreCountedAndTold(t *testing.T) {
	for _, w := range []eventbus.WhenFull{eventbus.WaitWhenFull, eventbus.RejectWhenFull, eventbus.DropNewest, eventbus.DropOldest} {
		synctest.Test(t, func(t *testing.T) {
			var told []observer.Dropped
			bus := eventbustest.On(t, &slowly{inmemory.New(inmemory.Options{})}, eventbus.Options{
				MaxPending: 6, WhenFull: w, PublishTimeout: -1,
				Observer: observer.Observer{Dropped: func(d observer.Dropped) { told = append(told, d) }},
			})
			var wg sync.WaitGroup
			errs := make([]error, 5)
			for i := range errs {
				wg.Go(func() {
					errs[i] = bus.Publish(t.Context(), "t", &eventbus.Event{Payload: make([]byte, 100)}, &eventbus.Event{})
				})
				synctest.Wait()
			}
			wg.Wait()
			require.NoError(t, bus.Shutdown(t.Context()))
			want := map[eventbus.WhenFull]string{
				eventbus.WaitWhenFull: "sssss", eventbus.RejectWhenFull: "sssrr", eventbus.DropNewest: "sssdd", eventbus.DropOldest: "sddss",
			}[w]
			got := ""
			for _, err := range errs {
				switch {
				case err == nil:
					got += "s"
				case errors.Is(err, eventbus.ErrBackpressure):
					got += "r"
				case errors.Is(err, eventbus.ErrDropped) && !errors.Is(err, eventbus.ErrUnknownOutcome):
					got += "d"
				}
			}
			require.Equal(t, want, got, "calls stored, rejected and dropped")
			if w < eventbus.DropNewest {
				require.Empty(t, told)
				require.Zero(t, bus.Dropped())
				return
			}
			require.Equal(t, int64(4), bus.Dropped())
			require.Len(t, told, 2)
			require.Equal(t, "t", told[0].Topic)
			require.Equal(t, 2, told[0].Events)
			require.Greater(t, told[0].Bytes, 100)
			require.ErrorIs(t, told[0].Err, eventbus.ErrDropped)
		})
	}
}

// A Limiter is asked in addition to the bounds on held events.
func TestLimiterKeepsTheBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		s, err := bus.Subscribe(t.Context(), "t", eventbus.SubscribeOptions{
			Group: "g", Concurrency: 4, MaxInFlight: 8, Limiter: rate.New(1000, 1000), Timeout: time.Hour,
		}, func(_ context.Context, d *eventbus.Delivery) error {
			if len(d.Payload) > 0 {
				time.Sleep(time.Minute)
			}
			return nil
		})
		require.NoError(t, err)
		for i := range 200 {
			payload := []byte(fmt.Sprint(i))
			if i < 100 {
				payload = nil
			}
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{Payload: payload, Key: fmt.Sprint(i)}))
		}
		time.Sleep(time.Second)
		require.LessOrEqual(t, s.Counts().Received-s.Counts().Acknowledged, int64(8), "held")
		require.GreaterOrEqual(t, s.Counts().Acknowledged, int64(100))
		require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	})
}

// A read that waits when a breaker opens may still bring events. The read after it waits for
// the end of the pause.
func TestAReadUnderWayWhenABreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		breaker := limiter.NewBreaker(limiter.BreakerOptions{Runs: 1})
		began := map[string]time.Duration{}
		start := time.Now()
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 2, Limiter: breaker},
			func(_ context.Context, d *eventbus.Delivery) error {
				began[d.ID] = time.Since(start)
				time.Sleep(time.Second)
				if d.ID == "fails" {
					return eventbus.Permanent(errors.New("broken"))
				}
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "fails"}))
		time.Sleep(2 * time.Second)
		require.Equal(t, limiter.Open, breaker.State())
		for _, id := range []string{"read", "waits"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]time.Duration{"fails": 0, "read": 2 * time.Second, "waits": 31 * time.Second}, began)
	})
}

// A subscription whose topic is empty cannot keep the places of a shared limiter for itself,
// although it asks for all of them again after each read.
func TestAnIdleSubscriptionKeepsNoSharedPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		o := eventbus.SubscribeOptions{Group: "g", Concurrency: 10, Limiter: limiter.NewAdaptive(1, 10)}
		for _, topic := range []string{"idle", "busy"} {
			_, err := bus.Subscribe(t.Context(), topic, o, func(context.Context, *eventbus.Delivery) error { return nil })
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		require.NoError(t, bus.Publish(t.Context(), "idle", numbered(20)...))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Publish(t.Context(), "busy", numbered(1000)...))
		// At worst the busy one reads one event, while the limiter has one place, after each read of
		// the idle one, which takes ten seconds, a third of a lease.
		ctx, cancel := context.WithTimeout(t.Context(), 1000*10*time.Second)
		defer cancel()
		require.NoError(t, bus.WaitIdle(ctx))
	})
}
