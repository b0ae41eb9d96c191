package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A troubled is a backend in memory whose calls of one verb fail while it has an error.
type troubled struct {
	*inmemory.Backend
	remove, publish atomic.Pointer[error]
	fails           string // the topic of which Publish fails
}

func (b *troubled) Remove(ctx context.Context, topic string, positions []string) error {
	if err := b.remove.Load(); err != nil {
		return *err
	}
	return b.Backend.Remove(ctx, topic, positions)
}

func (b *troubled) Publish(ctx context.Context, ms []*backend.Message) error {
	if err := b.publish.Load(); err != nil && ms[0].Topic == b.fails {
		return *err
	}
	return b.Backend.Publish(ctx, ms)
}

// onTroubled runs a test with a bus on a troubled backend. told gets the failures of schedules.
func onTroubled(t *testing.T, test func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		b, told := &troubled{Backend: inmemory.New(inmemory.Options{})}, &atomic.Int64{}
		bus, err := eventbus.New(b, eventbus.Options{PublishTimeout: time.Second, Observer: observer.Observer{Failed: func(f observer.Failed) {
			if f.Scope == observer.Schedule {
				told.Add(1)
			}
		}}})
		require.NoError(t, err)
		test(t, b, bus, told)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

func subscribedOn(t *testing.T, bus *eventbus.Bus) *arrivals {
	a := &arrivals{}
	_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, a.handle)
	require.NoError(t, err)
	return a
}

// While published events cannot be removed from the log, for longer than the broker remembers
// their IDs, none is published twice, and it is told.
func TestScheduleThatCannotBeRemoved(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		a := subscribedOn(t, bus)
		for i := range 20 {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Duration(i)*time.Second, &eventbus.Event{ID: fmt.Sprint(i)}))
		}
		err := fmt.Errorf("%w: as the test wants", backend.ErrUnavailable)
		time.Sleep(5 * time.Second)
		b.remove.Store(&err)
		time.Sleep(time.Hour)
		b.remove.Store(nil)
		time.Sleep(time.Hour)
		require.Len(t, a.ids(), 20)
		require.Positive(t, told.Load())
		left, err := backend.Read(t.Context(), b, "orders.later", "", 100)
		require.NoError(t, err)
		require.Empty(t, left, "the log is empty in the end")
	})
}

// While the topic takes no events, for an hour, they wait and it is told. Then they come at
// once, in the order of their times.
func TestScheduleOfAFullTopic(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		b.fails = "orders"
		a := subscribedOn(t, bus)
		for _, i := range []int{3, 1, 2, 0, 4} {
			require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Duration(i+1)*time.Second, &eventbus.Event{ID: fmt.Sprint(i), Key: "k"}))
		}
		full := fmt.Errorf("%w: as the test wants", backend.ErrFull)
		b.publish.Store(&full)
		time.Sleep(time.Hour)
		require.Empty(t, a.ids())
		require.Positive(t, told.Load())
		b.publish.Store(nil)
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, a.ids())
	})
}

// A log that takes no records does not stop the events that are due.
func TestScheduleWithAFullLog(t *testing.T) {
	onTroubled(t, func(t *testing.T, b *troubled, bus *eventbus.Bus, told *atomic.Int64) {
		b.fails = "orders.later"
		a := subscribedOn(t, bus)
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "tick", Topic: "orders", Every: time.Hour}))
		require.NoError(t, bus.PublishIn(t.Context(), "orders", time.Minute, &eventbus.Event{ID: "due"}))
		full := fmt.Errorf("%w: as the test wants", backend.ErrFull)
		b.publish.Store(&full)
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"due"}, a.ids())
		require.Positive(t, told.Load())
		b.publish.Store(nil)
	})
}
