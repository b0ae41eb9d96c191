package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
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
