package bus_test

import (
	"context"
	"errors"
	"slices"
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

// Timeout bounds the call, not the wait for it. Waiting for another call costs an event no
// attempt, and its call has the whole Timeout.
func TestTimeoutOfABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var b batches
		var causes []error
		_, err := bus.SubscribeBatch(t.Context(), "orders",
			eventbus.SubscribeOptions{Group: "g", Timeout: time.Minute, Retry: eventbus.Retry{MaxAttempts: 1}}, eventbus.Batch{MaxSize: 2},
			b.of(func(ctx context.Context, ds []*eventbus.Delivery) []error {
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.Equal(t, time.Minute, time.Until(deadline))
				if ds[0].ID < "002" {
					time.Sleep(50 * time.Second)
					return nil
				}
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return []error{ctx.Err(), nil}
			}))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(4)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, b.calls, 2)
		require.Equal(t, 50*time.Second, b.calls[1].began)
		require.ErrorAs(t, causes[0], new(*observer.TimeoutError))
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1, "a late success is a success")
		require.Contains(t, dead[0].Headers.Get("eventbus-dead-error"), "ran longer than 1m0s")
	})
}

// An event that MaxBytes keeps waiting for many calls is given back, and has spent no
// attempt.
func TestWaitingForABatchCostsNoAttempt(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		attempts := map[string][]int{}
		s, err := bus.SubscribeBatch(t.Context(), "orders",
			eventbus.SubscribeOptions{Group: "g", Timeout: time.Minute, Retry: eventbus.Retry{MaxAttempts: 1}}, eventbus.Batch{MaxSize: 10, MaxBytes: 10},
			func(_ context.Context, ds []*eventbus.Delivery) []error {
				for _, d := range ds {
					attempts[d.ID] = append(attempts[d.ID], d.Attempt)
				}
				time.Sleep(59 * time.Second)
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(10)...))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, attempts, 10)
		for id, as := range attempts {
			require.Equal(t, []int{1}, as, id)
		}
		require.Greater(t, s.Counts().Received, int64(10), "some were given back")
		require.Zero(t, s.Counts().Failures, "no call failed")
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

// nineSeconds is a BatchHandler that needs nine seconds and fails if ctx ends before.
func nineSeconds(ctx context.Context, ds []*eventbus.Delivery) []error {
	select {
	case <-time.After(9 * time.Second):
		return nil
	case <-ctx.Done():
		return slices.Repeat([]error{context.Cause(ctx)}, len(ds))
	}
}

// A call gets all of its timeout, however long its events have waited for it. Otherwise the
// wait of other events, each on its last attempt, would fail them for good.
func TestEachCallHasAllOfItsTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		batch  eventbus.Batch
		poison []string
	}{"last attempts": {poison: []string{"003"}}, "batches of few bytes": {batch: eventbus.Batch{MaxBytes: 20}}} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, bus *eventbustest.Bus) {
				o := eventbus.SubscribeOptions{Group: "g", Timeout: 10 * time.Second, Retry: eventbus.Retry{MaxAttempts: 2}}
				_, err := bus.SubscribeBatch(t.Context(), "orders", o, c.batch, func(ctx context.Context, ds []*eventbus.Delivery) []error {
					if slices.ContainsFunc(ds, func(d *eventbus.Delivery) bool { return slices.Contains(c.poison, d.ID) }) {
						panic("poison")
					}
					return nineSeconds(ctx, ds)
				})
				require.NoError(t, err)
				require.NoError(t, bus.Publish(t.Context(), "orders", numbered(40)...))
				require.NoError(t, bus.WaitIdle(t.Context()))
				var dead []string
				for _, e := range bus.Published("orders.dlq") {
					dead = append(dead, deadID(e))
				}
				require.Equal(t, c.poison, dead)
			})
		})
	}
}

// The observer hears of a call that does not return.
func TestAStuckBatchIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan observer.Stuck, 9)
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Stuck: func(s observer.Stuck) { stuck <- s }}})
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Minute}, eventbus.Batch{},
			func(context.Context, []*eventbus.Delivery) []error {
				time.Sleep(time.Hour)
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(2)...))
		time.Sleep(time.Minute + 6*time.Second)
		require.Len(t, stuck, 2)
		time.Sleep(time.Hour)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// When the time of a drain is up, a call is cancelled with cause ErrShutdown, and the events
// that wait for the next call are given back.
func TestDrainCutsABatchShort(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		cause, rest := error(nil), 0
		o := eventbus.SubscribeOptions{Group: "g", Timeout: -1}
		s, err := bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{MaxSize: 3, MaxBytes: 10},
			func(ctx context.Context, ds []*eventbus.Delivery) []error {
				_, bounded := ctx.Deadline()
				require.False(t, bounded)
				<-ctx.Done()
				cause = context.Cause(ctx)
				return []error{cause}
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(5)...))
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.Drain(ctx))
		require.ErrorIs(t, cause, eventbus.ErrShutdown)
		_, err = bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
			rest += len(ds)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 5, rest)
	})
}

// unextending is a backend that cannot extend leases.
type unextending struct{ backend.Backend }

func (b unextending) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return struct{ backend.Source }{s}, err
}

// If leases cannot be extended, the wait for a batch and its call must fit into a lease.
func TestBatchWithoutExtendedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, unextending{inmemory.New(inmemory.Options{})}, eventbus.Options{})
		o := eventbus.SubscribeOptions{Group: "g", Lease: 30 * time.Second, Timeout: 29*time.Second + 995*time.Millisecond}
		_, err := bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{}, allHandled)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "SubscribeOptions.Timeout plus Batch.MaxWait must be less than Lease, 30s")
		var b batches
		o.Timeout = 29 * time.Second
		_, err = bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{}, b.of(allHandled))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, []int{3}, b.sizes())
	})
}

// No handler gets an event that has expired while it waited for its batch.
func TestEventsExpireInABatch(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		var got []string
		s, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{MaxWait: 10 * time.Second},
			func(_ context.Context, ds []*eventbus.Delivery) []error {
				for _, d := range ds {
					got = append(got, d.ID)
				}
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "expires", TTL: time.Second}, &eventbus.Event{ID: "stays", TTL: time.Minute}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []string{"stays"}, got)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "expires", TTL: time.Second}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []string{"stays"}, got)
		require.Equal(t, int64(2), s.Counts().Discarded)
	})
}

// No handler gets an event that has expired while middleware waited.
func TestEventsExpireInMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				time.Sleep(2 * time.Second)
				return next(ctx, d)
			}
		}
		bus := eventbustest.NewWith(t, eventbus.Options{Middleware: []eventbus.Middleware{slow}})
		var got []string
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
			got = append(got, d.ID)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "expires", TTL: time.Second}, &eventbus.Event{ID: "stays", TTL: time.Minute}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []string{"stays"}, got)
		require.Equal(t, int64(1), s.Counts().Discarded)
	})
}
