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
)

// An Event that is published again and again is another event each time, also with Dedup.
// The event stays as it was, and several calls may publish it at the same time.
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

// A receipt has the ID, the time and the position of the stored event. The second event of an
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
