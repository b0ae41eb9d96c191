package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
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

// An Event that is published again and again is another event each time, even with Dedup. The
// event stays as it was, and several calls may publish it at the same time.
func TestPublishLeavesTheEventAlone(t *testing.T) {
	for _, middlewares := range [][]eventbus.PublishMiddleware{nil, {busy}} {
		bus := eventbustest.NewWith(t, eventbus.Options{Service: "shop", Dedup: true, PublishMiddleware: middlewares})
		e := &eventbus.Event{Key: "k", Headers: make(eventbus.Headers, 1, 4)}
		e.Headers[0] = eventbus.Header{Name: "tenant", Value: "blue"}
		for i := range 5 {
			e.Payload = fmt.Append(nil, i)
			require.NoError(t, bus.Publish(t.Context(), "orders", e))
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { require.NoError(t, bus.Publish(t.Context(), "orders", e, e)) })
		}
		wg.Wait()
		want := &eventbus.Event{Key: "k", Headers: eventbus.Headers{{Name: "tenant", Value: "blue"}}, Payload: []byte("4")}
		require.Equal(t, want, e)
		require.Empty(t, e.Headers[:2][1], "behind the headers")
		ids := map[string]bool{}
		for _, e := range bus.Published("orders") {
			ids[e.ID] = true
		}
		require.Len(t, ids, 15)
	}
}

// busy changes the events that it gets.
func busy(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		for _, e := range events {
			e.Headers.Set("tenant", "red")
			e.Headers.Set("more", "x")
			e.Subject = "changed"
		}
		return next.Publish(ctx, topic, events...)
	})
}

// A receipt holds the ID, the time and the position of the stored event. The second event of an
// ID is a duplicate.
func TestReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, middlewares := range [][]eventbus.PublishMiddleware{nil, {busy}, {copying, busy}, {twice, copying}} {
			bus := eventbustest.NewWith(t, eventbus.Options{Dedup: true, PublishMiddleware: middlewares})
			at := time.Unix(7, 0).UTC()
			receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{ID: "a", Time: at}, &eventbus.Event{})
			require.NoError(t, err)
			stored := bus.Published("orders")
			require.Len(t, stored, 2)
			for i, r := range receipts {
				require.Equal(t, eventbus.Receipt{ID: stored[i].ID, Time: r.Time, Position: stored[i].Position}, r)
				require.True(t, stored[i].Time.Equal(r.Time))
			}
			require.Equal(t, at, receipts[0].Time)

			again, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{ID: "a"}, &eventbus.Event{ID: "b"})
			require.NoError(t, err)
			require.True(t, again[0].Duplicate)
			require.Equal(t, receipts[0].Position, again[0].Position)
			require.False(t, again[1].Duplicate)
			require.Greater(t, again[1].Position, receipts[1].Position)
			none, err := bus.PublishReceipts(t.Context(), "orders")
			require.NoError(t, err)
			require.Empty(t, none)
			require.NoError(t, bus.Shutdown(t.Context()))
		}
	})
}

// copying publishes copies of the events, each in a call of its own.
func copying(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		for _, e := range events {
			c := *e
			if err := next.Publish(ctx, topic, &c); err != nil {
				return err
			}
		}
		return nil
	})
}

// twice publishes the events to another topic too.
func twice(next eventbus.Publisher) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		return errors.Join(next.Publish(ctx, topic, events...), next.Publish(ctx, "copies", events...))
	})
}

// An event that was not stored has a receipt without a position. Its ID serves to publish the
// event again.
func TestReceiptsOfFailures(t *testing.T) {
	for _, middlewares := range [][]eventbus.PublishMiddleware{nil, {busy}} {
		bus := eventbustest.On(t, &picky{Backend: inmemory.New(inmemory.Options{})}, eventbus.Options{PublishMiddleware: middlewares})
		receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{Key: "bad"})
		require.ErrorIs(t, err, eventbus.ErrFull)
		require.NotEmpty(t, receipts[0].Position)
		require.NotEmpty(t, receipts[1].ID)
		require.Equal(t, eventbus.Receipt{ID: receipts[1].ID, Time: receipts[1].Time}, receipts[1])

		receipts, err = bus.PublishReceipts(t.Context(), "or ders", &eventbus.Event{}, nil)
		_, refused := errors.AsType[*eventbus.FieldError](err)
		require.True(t, refused)
		require.Len(t, receipts, 2)
		require.Empty(t, receipts[0].Position)
	}
}

// picky stores no message with the key "bad".
type picky struct{ *inmemory.Backend }

func (p *picky) Publish(ctx context.Context, msgs []*backend.Message) error {
	errs := make(backend.BatchError, len(msgs))
	for i, m := range msgs {
		if errs[i] = backend.ErrFull; m.Key != "bad" {
			errs[i] = p.Backend.Publish(ctx, []*backend.Message{m})
		}
	}
	return backend.AsBatchError(errs)
}

// A middleware gets each event as it will be stored.
func TestMiddlewareSeesTheWholeEvent(t *testing.T) {
	var got []eventbus.Event
	see := func(next eventbus.Publisher) eventbus.Publisher {
		return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			got = append(got, *events[0])
			return next.Publish(ctx, topic, events...)
		})
	}
	bus := eventbustest.NewWith(t, eventbus.Options{Service: "shop", PublishMiddleware: []eventbus.PublishMiddleware{see}})
	receipts, err := eventbus.Topic[int]{Name: "orders"}.PublishReceipts(t.Context(), bus, 7)
	require.NoError(t, err)
	require.Equal(t, receipts[0].ID, got[0].ID)
	require.Equal(t, receipts[0].Time, got[0].Time)
	require.Equal(t, "shop", got[0].Source)
	require.Equal(t, "7", string(bus.Published("orders")[0].Payload))
	_, err = eventbus.Topic[func()]{Name: "orders"}.PublishReceipts(t.Context(), bus, func() {})
	require.Error(t, err)
}

// The event that a middleware publishes on the same bus has no part in the receipts.
func TestReceiptsOfACallWithinACall(t *testing.T) {
	var bus *eventbustest.Bus
	audit := func(next eventbus.Publisher) eventbus.Publisher {
		return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
			if topic == "audit" {
				return next.Publish(ctx, topic, events...)
			}
			return errors.Join(bus.Publish(ctx, "audit", events...), next.Publish(ctx, topic, events...))
		})
	}
	bus = eventbustest.NewWith(t, eventbus.Options{PublishMiddleware: []eventbus.PublishMiddleware{audit}})
	require.NoError(t, bus.Publish(t.Context(), "audit", &eventbus.Event{}))
	receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{ID: "a"})
	require.NoError(t, err)
	require.Equal(t, bus.Published("orders")[0].Position, receipts[0].Position)
}

// IDs are UUIDs of version 7 with the right time, and unique among all publishers.
func TestIDs(t *testing.T) {
	const calls, each, publishers = 10, 100, 4
	bus := eventbustest.New(t)
	made, errs := make([][]eventbus.Receipt, publishers), make([]error, publishers)
	events := slices.Repeat([]*eventbus.Event{{}}, each)
	before := time.Now()
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for range calls {
				receipts, err := bus.PublishReceipts(t.Context(), "orders", events...)
				made[i] = append(made[i], receipts...)
				if err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	after := time.Now().Add(time.Second) // many IDs within a moment get later times
	require.Equal(t, make([]error, publishers), errs)
	seen, tails := map[uuid.UUID]bool{}, map[[8]byte]bool{}
	for _, receipts := range made {
		require.Len(t, receipts, calls*each)
		last := ""
		for _, r := range receipts {
			id, err := uuid.Parse(r.ID)
			require.NoError(t, err)
			require.Equal(t, id.String(), r.ID)
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			sec, nsec := id.Time().UnixTime()
			require.WithinRange(t, time.Unix(sec, nsec), before.Truncate(time.Millisecond), after)
			require.Greater(t, r.ID, last)
			last = r.ID
			require.False(t, seen[id])
			seen[id] = true
			require.False(t, tails[[8]byte(id[8:])], "the same random bytes")
			tails[[8]byte(id[8:])] = true
		}
	}
}

// A stored time has the same text as with package time.
func TestTimesAsText(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus := eventbustest.On(t, b, eventbus.Options{})
	times := []time.Time{
		time.Unix(0, 0),
		time.Unix(1795273445, 0),
		time.Unix(1795273445, 1),
		time.Unix(1795273445, 120_000_000),
		time.Unix(1795273445, 999_999_999).In(time.FixedZone("here", 3600)),
		time.Unix(-1, 500),
		time.Date(9999, 12, 31, 23, 59, 59, 5, time.UTC),
		time.Date(0, 1, 1, 0, 0, 0, 5, time.UTC),
		time.Unix(1795273445, 5),
	}
	var events []*eventbus.Event
	var want, got []string
	for _, at := range times {
		events = append(events, &eventbus.Event{Time: at}, &eventbus.Event{Time: at}) // again
		text := at.UTC().Format(time.RFC3339Nano)
		want = append(want, text, text)
	}
	require.NoError(t, bus.Publish(t.Context(), "orders", events...))
	stored, err := b.Read(t.Context(), "orders", "", len(events)+1)
	require.NoError(t, err)
	for _, m := range stored {
		got = append(got, m.Headers.Get("ce-time"))
	}
	require.Equal(t, want, got)
	require.NoError(t, bus.Shutdown(t.Context()))
}

func TestIDsOfOneMomentAscend(t *testing.T) {
	bus := eventbustest.New(t)
	receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{})
	require.NoError(t, err)
	require.Equal(t, receipts[0].Time, receipts[1].Time)
	require.Less(t, receipts[0].ID, receipts[1].ID)
}
