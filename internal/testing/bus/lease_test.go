package bus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// A read that waited longer than a lease returns an event whose lease has just begun.
func TestWhatComesAfterAnIdleHourIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, mem, eventbus.Options{})
		var errs []error
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			func(ctx context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Second)
				errs = append(errs, context.Cause(ctx))
				return nil
			})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		require.NoError(t, mem.WaitSettled(t.Context()))
		require.Zero(t, sub.Counts().LeasesLost)
		require.Equal(t, []error{nil, nil}, errs)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// While the answer to an acknowledgement is in flight, the broker answers Extend with
// ErrLeaseLost, because the event is acknowledged already. The handler must run.
func TestOnReceiveASlowAcknowledgementIsNotALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, slowAcks{mem}, eventbus.Options{})
		ran := 0
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Ack: eventbus.AckOnReceive},
			func(context.Context, *eventbus.Delivery) error { ran++; return nil })
		require.NoError(t, err)
		time.Sleep(5 * time.Second) // leases are extended at 10 s
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, 1, ran, "runs of an event whose acknowledgement was confirmed within the lease; %+v", sub.Counts())
	})
}

// slowAcks is a backend that answers an Ack after 9 s of a 30 s lease.
type slowAcks struct{ backend.Backend }

func (b slowAcks) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return slowAckSource{s}, err
}

type slowAckSource struct{ backend.Source }

func (s slowAckSource) Unwrap() backend.Source { return s.Source }

func (s slowAckSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	err := s.Source.Ack(ctx, ds)
	time.Sleep(9 * time.Second)
	return err
}

// Handlers that never return do not stop the subscription, until there are too many of them:
// then State and Ready say so. When they return, all events are handled.
func TestStuckHandlersAreReplacedUpToABound(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		const handlers, events = 2, 500
		var stuck atomic.Int64
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		sub, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "g", Concurrency: handlers, Timeout: time.Second, Retry: eventbus.Retry{MaxAttempts: -1},
		}, func(context.Context, *eventbus.Delivery) error {
			stuck.Add(1)
			defer stuck.Add(-1)
			<-release
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(events)...))
		time.Sleep(time.Hour)
		require.Greater(t, stuck.Load(), int64(handlers), "stuck handlers are replaced")
		require.Less(t, stuck.Load(), int64(events)/4, "handlers that run although their time is up are bounded")
		state, err := sub.State()
		require.Equal(t, observer.Degraded, state)
		require.ErrorContains(t, err, "handlers")
		require.Error(t, bus.Ready(t.Context()))
		bound := stuck.Load()
		time.Sleep(time.Hour)
		require.Equal(t, bound, stuck.Load(), "no further handler starts")
		free()
		require.NoError(t, bus.WaitIdle(t.Context()))
		time.Sleep(time.Second) // the broker has the acknowledgements before the member counts them
		require.NoError(t, bus.Ready(t.Context()))
		state, _ = sub.State()
		require.Equal(t, observer.Running, state)
		require.EqualValues(t, events, sub.Counts().Acknowledged)
	})
}

// The state is right after many stuck handlers have returned at the same moment, each of which
// reports it. It takes luck to get two of them in the wrong order, so there are many.
func TestStateAfterStuckHandlers(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		const topics, handlers, rounds = 60, 2, 6
		var release atomic.Pointer[chan struct{}]
		var subs []*eventbus.Subscription
		for i := range topics {
			sub, err := bus.Subscribe(t.Context(), fmt.Sprint("topic-", i), eventbus.SubscribeOptions{Group: "g", Concurrency: handlers, Timeout: time.Second},
				func(context.Context, *eventbus.Delivery) error {
					<-*release.Load()
					return nil
				})
			require.NoError(t, err)
			subs = append(subs, sub)
		}
		for range rounds {
			c := make(chan struct{})
			release.Store(&c)
			for i := range topics {
				require.NoError(t, bus.Publish(t.Context(), fmt.Sprint("topic-", i), numbered(handlers)...))
			}
			time.Sleep(time.Minute)
			for _, sub := range subs {
				state, _ := sub.State()
				require.Equal(t, observer.Degraded, state)
			}
			close(c)
			require.NoError(t, bus.WaitIdle(t.Context()))
			time.Sleep(time.Second)
			for _, sub := range subs {
				state, err := sub.State()
				require.Equal(t, observer.Running, state, err)
			}
		}
	})
}

// An event whose handler never returns takes up three slots, and is dead-lettered after its
// last attempt. Other events are handled, even with one handler or in a batch. If its handlers
// return, it runs again.
func TestAnEventThatHangsStopsNoOther(t *testing.T) {
	for _, c := range []struct {
		batch   int
		returns bool
	}{{1, false}, {1, true}, {4, false}, {4, true}} {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			var runs atomic.Int64
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			defer free()
			end := make(chan struct{})
			defer close(end)
			sub := hanging(t, bus, c.batch, func(id string) {
				if id == "for ever" {
					<-end
				}
				runs.Add(1)
				<-release
			})
			require.NoError(t, bus.Publish(t.Context(), "orders", append([]*eventbus.Event{{ID: "hangs"}}, numbered(100)...)...))
			stuck := 3
			if c.returns {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "for ever", Retry: &eventbus.RetryRule{MaxAttempts: -1}}))
				stuck = 6
			}
			time.Sleep(10 * time.Minute)
			require.EqualValues(t, 100, sub.Counts().Acknowledged)
			require.EqualValues(t, 3, runs.Load())
			_, err := sub.State()
			require.ErrorContains(t, err, fmt.Sprint(stuck, " handlers have run for more than 5s beyond their timeout, 1s, and end only with their process; 1 more can run at a time"))
			if c.returns {
				free()
			}
			time.Sleep(time.Hour)
			dead, err := backend.Read(t.Context(), bus.Backend(), "orders.dlq", backend.StartEarliest, 10)
			require.NoError(t, err)
			if c.returns {
				require.Empty(t, dead)
				require.EqualValues(t, 101, sub.Counts().Acknowledged)
				require.EqualValues(t, 4, runs.Load())
				return
			}
			require.Len(t, dead, 1)
			letter := eventbus.EventOf(&dead[0])
			why, _ := eventbus.DeadLetterOf(&letter)
			require.Equal(t, eventbus.ReasonExhausted, why.Reason)
			require.Equal(t, "timeout", why.ErrorClass)
			require.Equal(t, 12, why.Attempts)
			require.Equal(t, "eventbus: 3 runs of the event have not returned: eventbus: handler ran longer than 1s", why.Error)
			require.EqualValues(t, 3, runs.Load())
		})
	}
}

// hanging subscribes with a timeout of a second, one by one or in batches. hang is called for the events
// that have no number.
func hanging(t *testing.T, bus *eventbustest.Bus, batch int, hang func(id string)) (sub *eventbus.Subscription) {
	o := eventbus.SubscribeOptions{Group: "g", Timeout: time.Second, Retry: eventbus.Retry{Jitter: -1}}
	var err error
	if batch == 1 {
		sub, err = bus.Subscribe(t.Context(), "orders", o, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID[0] > '9' {
				hang(d.ID)
			}
			return nil
		})
	} else {
		sub, err = bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{MaxSize: batch}, func(_ context.Context, ds []*eventbus.Delivery) []error {
			if i := slices.IndexFunc(ds, func(d *eventbus.Delivery) bool { return d.ID[0] > '9' }); i >= 0 {
				hang(ds[i].ID)
			}
			return nil
		})
	}
	require.NoError(t, err)
	return sub
}
