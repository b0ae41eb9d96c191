package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

// A batch is divided by types, and each event gets its own result.
func TestByTypeOfBatches(t *testing.T) {
	lost, bad := errors.New("lost"), errors.New("bad")
	var calls [][]string
	take := func(name string, err error) eventbus.BatchHandler {
		return func(_ context.Context, ds []*eventbus.Delivery) []error {
			call := []string{name}
			errs := make([]error, len(ds))
			for i, d := range ds {
				call = append(call, d.ID)
				if d.Subject == "bad" {
					errs[i] = err
				}
			}
			calls = append(calls, call)
			return errs
		}
	}
	h := eventbus.ByType(map[string]eventbus.BatchHandler{"a": take("a", lost), "b": take("b", bad)}, nil)
	var ds []*eventbus.Delivery
	for i, typ := range []string{"b", "a", "c", "b", "a"} {
		ds = append(ds, &eventbus.Delivery{Event: eventbus.Event{ID: fmt.Sprint(i), Type: typ, Subject: []string{"", "bad"}[i/3]}})
	}
	errs := h(t.Context(), ds)
	require.Equal(t, [][]string{{"b", "0", "3"}, {"a", "1", "4"}}, calls)
	require.Equal(t, []error{nil, nil, errs[2], bad, lost}, errs)
	require.ErrorContains(t, errs[2], `no handler for events of type "c"`)

	calls = nil
	h = eventbus.ByType(map[string]eventbus.BatchHandler{"a": func(context.Context, []*eventbus.Delivery) []error { panic("boom") }}, take("other", bad))
	errs = h(t.Context(), ds)
	require.Equal(t, [][]string{{"other", "0", "2", "3"}}, calls)
	require.ErrorContains(t, errs[1], "boom")
	require.Equal(t, []error{nil, errs[1], nil, bad, errs[1]}, errs, "a panic fails only the events of its handler")
}

func TestByTypeOfManualHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		settled := make(chan string, 3)
		ack := func(name string) eventbus.ManualHandler {
			return func(ctx context.Context, d *eventbus.ManualDelivery) error {
				settled <- name + " " + d.ID
				return d.Ack(ctx)
			}
		}
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"},
			eventbus.ByType(map[string]eventbus.ManualHandler{"a": ack("a")}, ack("other")))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1", Type: "a"}, &eventbus.Event{ID: "2", Type: "b"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, "a 1", <-settled)
		require.Equal(t, "other 2", <-settled)
	})
}

type (
	sale    struct{ Cents int }
	invoice struct {
		Customer string
		Cents    int
	}
)

var (
	placed    = eventbus.Topic[sale]{Name: "orders", Type: "order.placed"}
	cancelled = eventbus.Topic[sale]{Name: "orders", Type: "order.cancelled"}
	invoices  = eventbus.Topic[invoice]{Name: "invoices", Type: "invoice.sent"}
)

func handleOrder(context.Context, sale, *eventbus.Delivery) error { return nil }

// A second type in a group of one bus is refused, because each member would dead-letter the
// events of the other type.
func TestAGroupHasOneKindOfTypedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		o := eventbus.SubscribeOptions{Group: "billing"}
		first, err := placed.Subscribe(t.Context(), bus, o, handleOrder)
		require.NoError(t, err)
		refused := func(err error) {
			t.Helper()
			var wrong *eventbus.FieldError
			require.ErrorAs(t, err, &wrong)
			require.Equal(t, "SubscribeOptions.Group", wrong.Field)
			require.ErrorContains(t, err, `bus_test.sale of type "order.placed"`)
			require.ErrorContains(t, err, "ByType")
		}
		_, err = cancelled.Subscribe(t.Context(), bus, o, handleOrder)
		refused(err)
		_, err = cancelled.SubscribeManual(t.Context(), bus, o, func(context.Context, sale, *eventbus.ManualDelivery) error { return nil })
		refused(err)
		_, err = cancelled.SubscribeBatch(t.Context(), bus, o, eventbus.Batch{}, func(context.Context, []sale, []*eventbus.Delivery) []error { return nil })
		refused(err)
		_, err = eventbus.Topic[string]{Name: "orders", Type: placed.Type}.Subscribe(t.Context(), bus, o, func(context.Context, string, *eventbus.Delivery) error { return nil })
		refused(err)
		_, err = eventbus.Topic[sale]{Name: "orders"}.Subscribe(t.Context(), bus, o, handleOrder)
		refused(err)

		second, err := placed.Subscribe(t.Context(), bus, o, handleOrder)
		require.NoError(t, err, "a second member of the same kind")
		_, err = cancelled.Subscribe(t.Context(), bus, eventbus.SubscribeOptions{Group: "refunds"}, handleOrder)
		require.NoError(t, err, "another group")
		elsewhere := cancelled
		elsewhere.Name = "bills"
		_, err = elsewhere.Subscribe(t.Context(), bus, o, handleOrder)
		require.NoError(t, err, "another topic")

		require.NoError(t, first.Drain(t.Context()))
		_, err = cancelled.Subscribe(t.Context(), bus, o, handleOrder)
		refused(err)
		require.NoError(t, second.Drain(t.Context()))
		_, err = cancelled.Subscribe(t.Context(), bus, eventbus.SubscribeOptions{Group: "billing", Concurrency: -1}, handleOrder)
		require.Error(t, err)
		_, err = placed.Subscribe(t.Context(), bus, o, handleOrder)
		require.NoError(t, err, "a refused Subscribe leaves no member")
	})
}

// All events of a topic with two types are handled by one Subscribe with ByType.
func TestTwoTypesInOneGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		counts := map[string]int{}
		count := func(_ context.Context, _ sale, d *eventbus.Delivery) error { counts[d.Type]++; return nil }
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"},
			eventbus.ByType(map[string]eventbus.Handler{placed.Type: placed.Handler(count), cancelled.Type: cancelled.Handler(count)}, eventbus.DiscardUnknown))
		require.NoError(t, err)
		for range 50 {
			require.NoError(t, placed.Publish(t.Context(), bus, sale{}))
			require.NoError(t, cancelled.Publish(t.Context(), bus, sale{}))
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: "order.lost"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{placed.Type: 50, cancelled.Type: 50}, counts)
		require.EqualValues(t, 1, s.Counts().Discarded)
	})
}

// An event of another type is dead-lettered, discarded, or passed to a handler, as
// Topic.Unknown says.
func TestUnknownTypes(t *testing.T) {
	subscribe := map[string]func(t *testing.T, bus *eventbustest.Bus, topic eventbus.Topic[sale], o eventbus.SubscribeOptions, known *int) (*eventbus.Subscription, error){
		"each": func(t *testing.T, bus *eventbustest.Bus, topic eventbus.Topic[sale], o eventbus.SubscribeOptions, known *int) (*eventbus.Subscription, error) {
			return topic.Subscribe(t.Context(), bus, o, func(context.Context, sale, *eventbus.Delivery) error { *known++; return nil })
		},
		"at most once": func(t *testing.T, bus *eventbustest.Bus, topic eventbus.Topic[sale], o eventbus.SubscribeOptions, known *int) (*eventbus.Subscription, error) {
			o.Ack = eventbus.AckOnReceive
			return topic.Subscribe(t.Context(), bus, o, func(context.Context, sale, *eventbus.Delivery) error { *known++; return nil })
		},
		"manual": func(t *testing.T, bus *eventbustest.Bus, topic eventbus.Topic[sale], o eventbus.SubscribeOptions, known *int) (*eventbus.Subscription, error) {
			return topic.SubscribeManual(t.Context(), bus, o, func(ctx context.Context, _ sale, d *eventbus.ManualDelivery) error { *known++; return d.Ack(ctx) })
		},
		"batch": func(t *testing.T, bus *eventbustest.Bus, topic eventbus.Topic[sale], o eventbus.SubscribeOptions, known *int) (*eventbus.Subscription, error) {
			return topic.SubscribeBatch(t.Context(), bus, o, eventbus.Batch{}, func(_ context.Context, os []sale, _ []*eventbus.Delivery) []error { *known += len(os); return nil })
		},
	}
	for name, subscribe := range subscribe {
		run := func(t *testing.T, unknown eventbus.Handler) (known int, counts eventbus.Counts, discards []string, letters []eventbus.DeadLetter) {
			synctest.Test(t, func(t *testing.T) {
				bus := eventbustest.NewWith(t, eventbus.Options{Observer: observer.Observer{
					Discarded: func(d observer.Discarded) { discards = append(discards, d.Reason+": "+d.Err.Error()) },
				}})
				topic := placed
				topic.Unknown = unknown
				s, err := subscribe(t, bus, topic, eventbus.SubscribeOptions{
					Group: "billing", Retry: eventbus.Retry{MaxAttempts: 1}, OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { letters = append(letters, why) },
				}, &known)
				require.NoError(t, err)
				require.NoError(t, placed.Publish(t.Context(), bus, sale{}))
				require.NoError(t, cancelled.Publish(t.Context(), bus, sale{}))
				require.NoError(t, placed.Publish(t.Context(), bus, sale{}))
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.NoError(t, s.Drain(t.Context()))
				require.Equal(t, 2, known)
				counts = s.Counts()
				require.EqualValues(t, 3, counts.Acknowledged)
			})
			return known, counts, discards, letters
		}
		t.Run(name+"/dead-lettered", func(t *testing.T) {
			if name == "at most once" {
				t.Skip("it has no dead letters")
			}
			_, counts, _, letters := run(t, nil)
			require.Zero(t, counts.Discarded)
			require.Len(t, letters, 1)
			require.Equal(t, eventbus.ReasonPermanent, letters[0].Reason)
			require.Equal(t, "unknown-type", letters[0].ErrorClass)
		})
		t.Run(name+"/discarded", func(t *testing.T) {
			_, counts, discards, letters := run(t, eventbus.DiscardUnknown)
			require.EqualValues(t, 1, counts.Discarded)
			require.Equal(t, []string{`unknown-type: eventbus: event of the unknown type "order.cancelled" in orders`}, discards)
			require.Empty(t, letters)
		})
		t.Run(name+"/passed", func(t *testing.T) {
			passed := 0
			_, counts, discards, letters := run(t, func(_ context.Context, d *eventbus.Delivery) error {
				require.Equal(t, cancelled.Type, d.Type)
				passed++
				return nil
			})
			require.Equal(t, 1, passed)
			require.Zero(t, counts.Discarded)
			require.Empty(t, discards)
			require.Empty(t, letters)
		})
		t.Run(name+"/passed and failed", func(t *testing.T) {
			if name == "at most once" {
				t.Skip("it has no dead letters")
			}
			_, _, _, letters := run(t, func(context.Context, *eventbus.Delivery) error { return eventbus.Permanent(errors.New("no")) })
			require.Len(t, letters, 1)
		})
	}
}

// A type without a handler goes to the fallback.
func TestByTypeFallsBack(t *testing.T) {
	other := errors.New("other")
	h := eventbus.ByType(map[string]eventbus.Handler{}, func(context.Context, *eventbus.Delivery) error { return other })
	require.ErrorIs(t, h(t.Context(), &eventbus.Delivery{}), other)
}

func TestByTypeRefusesNil(t *testing.T) {
	require.Panics(t, func() { eventbus.ByType(map[string]eventbus.Handler{"order.placed": nil}, nil) })
}

// An event of another content type is a permanent failure that names both.
func TestAnotherContentTypeIsDeadLettered(t *testing.T) {
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		_, err := bus.Subscribe(t.Context(), invoices.Name, eventbus.SubscribeOptions{Group: "ledger"},
			invoices.Handler(func(context.Context, invoice, *eventbus.Delivery) error {
				t.Error("the handler ran")
				return nil
			}))
		require.NoError(t, err)
		e := &eventbus.Event{Type: invoices.Type, ContentType: "application/cbor", Payload: []byte("{}")}
		require.NoError(t, bus.Publish(t.Context(), invoices.Name, e))
		require.NoError(t, bus.WaitIdle(t.Context()))
		dead := bus.Published("invoices.dlq")
		require.Len(t, dead, 1)
		require.Equal(t, "permanent", dead[0].Headers.Get("eventbus-dead-reason"))
		require.Contains(t, dead[0].Headers.Get("eventbus-dead-error"), `content type "application/cbor", want "application/json"`)

		_, err = invoices.Decode(e)
		var wrong *codec.ContentTypeError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, codec.ContentTypeError{Got: "application/cbor", Want: []string{"application/json"}}, *wrong)
	})
}
