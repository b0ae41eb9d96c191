package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
)

// Each event of PublishAll has its own result, in the order of the arguments. One that is
// refused fails alone.
func TestPublishAll(t *testing.T) {
	bus := eventbustest.NewWith(t, eventbus.Options{Dedup: true})
	of := func(topic, id string) eventbus.Addressed {
		return eventbus.Addressed{Topic: topic, Event: &eventbus.Event{ID: id}}
	}
	large := of("orders", "large")
	large.Event.Payload = make([]byte, eventbus.MaxPayload+1)
	rs := eventbus.PublishAll(t.Context(), bus,
		of("orders", "1"), of("bills", "2"), of("a topic", "3"), large, of("orders", "4"), of("bills", "2"), eventbus.Addressed{Topic: "orders"})
	for i, want := range []string{"", "", "topic", "Payload", "", "", "event"} {
		if want == "" {
			require.NoError(t, rs[i].Err, i)
			require.NotEmpty(t, rs[i].Position, i)
			continue
		}
		f, ok := errors.AsType[*eventbus.FieldError](rs[i].Err)
		require.True(t, ok, "%d: %v", i, rs[i].Err)
		require.Contains(t, f.Field, want)
	}
	require.Less(t, rs[0].Position, rs[4].Position, "the order of a topic")
	require.False(t, rs[1].Duplicate)
	require.True(t, rs[5].Duplicate)
	require.Empty(t, eventbus.PublishAll(t.Context(), bus))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rs = eventbus.PublishAll(ended, bus, of("orders", "5"), of("bills", "6"))
	for _, r := range rs {
		require.ErrorIs(t, r.Err, context.Canceled)
		require.NotEmpty(t, r.ID)
	}
}

// Options.MaxPayload bounds payloads, up to the bound of the backend.
func TestMaxPayload(t *testing.T) {
	bus := eventbustest.NewWith(t, eventbus.Options{MaxPayload: 10})
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: make([]byte, 10)}))
	err := bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: make([]byte, 11)})
	require.EqualError(t, err, "eventbus: events[0].Payload has 11 bytes, more than 10")
	require.ErrorIs(t, err, eventbus.ErrTooLarge)

	bus = eventbustest.NewWith(t, eventbus.Options{MaxPayload: 20 << 20})
	require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: make([]byte, 20<<20)}))
	_, err = eventbus.New(small{inmemory.New(inmemory.Options{})}, eventbus.Options{MaxPayload: 4<<20 - 64<<10 + 1})
	require.EqualError(t, err, "eventbus: Options.MaxPayload is 4128769 bytes, but the backend accepts at most 4128768")
}

type small struct{ *inmemory.Backend }

func (s small) Limits() backend.Limits { return backend.Limits{Payload: 4 << 20} }

// By default an event of more than 10 MiB is a dead letter, and not handled.
func TestMaxReceiveByDefault(t *testing.T) {
	for most, want := range map[int64]int{0: 1, -1: 2, 20 << 20: 2} {
		bus := eventbustest.NewWith(t, eventbus.Options{MaxPayload: 12 << 20})
		var runs atomic.Int64
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", MaxReceive: most}, func(context.Context, *eventbus.Delivery) error {
			runs.Add(1)
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: make([]byte, 11<<20)}, &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.EqualValues(t, want, runs.Load(), most)
	}
}
