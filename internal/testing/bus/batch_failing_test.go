package bus_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A batch handler may use the slice of its results again: the bus does not write into it.
func TestResultsOfABatchAreNotWritten(t *testing.T) {
	var broken *os.PathError // a nil pointer, whose methods panic
	results := []error{broken}
	on(t, func(t *testing.T, bus *eventbustest.Bus) {
		sub, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 1}}, eventbus.Batch{},
			func(context.Context, []*eventbus.Delivery) []error { return results })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, sub.Counts().DeadLettered)
		require.Same(t, broken, results[0])
	})
}

// A call that panics, ends its goroutine or returns too few results fails its events. But
// on its last attempt an event is alone, so only the poison event is dead-lettered.
func TestPoisonDoesNotSpreadInABatch(t *testing.T) {
	for name, fault := range map[string]func(n int) []error{
		"panic":  func(int) []error { panic("poison") },
		"Goexit": func(int) []error { runtime.Goexit(); return nil },
		"short":  func(n int) []error { return make([]error, n-1) },
		"long":   func(n int) []error { return make([]error, n+1) },
		"empty":  func(int) []error { return []error{} },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, bus *eventbustest.Bus) {
				var b batches
				_, err := bus.SubscribeBatch(t.Context(), "orders",
					eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Jitter: -1, MaxAttempts: 4}}, eventbus.Batch{},
					b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
						if slices.ContainsFunc(ds, func(d *eventbus.Delivery) bool { return d.ID == "003" }) {
							return fault(len(ds))
						}
						return nil
					}))
				require.NoError(t, err)
				require.NoError(t, bus.Publish(t.Context(), "orders", numbered(6)...))
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.Equal(t, []int{6, 6, 6, 1, 1, 1, 1, 1, 1}, b.sizes())
				dead := bus.Published("orders.dlq")
				require.Len(t, dead, 1)
				require.Equal(t, "003", deadID(dead[0]))
			})
		})
	}
}

// A rule that gives panics or timeouts fewer attempts, and Event.Retry, decide which attempt
// is the last.
func TestTheLastAttemptInABatch(t *testing.T) {
	for name, c := range map[string]struct {
		retry eventbus.Retry
		own   *eventbus.RetryRule
	}{
		"of the subscription": {retry: eventbus.Retry{MaxAttempts: 3}},
		"of a rule":           {retry: eventbus.Retry{Rules: []eventbus.RetryRule{{Class: "timeout", MaxAttempts: 5}, {Class: "panic", MaxAttempts: 3}}}},
		"of the event":        {own: &eventbus.RetryRule{MaxAttempts: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(t *testing.T, bus *eventbustest.Bus) {
				c.retry.Jitter = -1
				var b batches
				_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: c.retry}, eventbus.Batch{},
					b.of(func(_ context.Context, ds []*eventbus.Delivery) []error {
						if slices.ContainsFunc(ds, func(d *eventbus.Delivery) bool { return d.ID == "001" }) {
							panic("poison")
						}
						return nil
					}))
				require.NoError(t, err)
				es := numbered(3)
				for _, e := range es {
					e.Retry = c.own
				}
				require.NoError(t, bus.Publish(t.Context(), "orders", es...))
				require.NoError(t, bus.WaitIdle(t.Context()))
				require.Equal(t, []int{3, 3, 1, 1, 1}, b.sizes())
				require.Len(t, bus.Published("orders.dlq"), 1)
			})
		})
	}
}

// The timeout of the bus is the default of a call's.
func TestABatchHasTheTimeoutOfTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Timeout: 7 * time.Second})
		var left time.Duration
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g"}, eventbus.Batch{},
			func(ctx context.Context, _ []*eventbus.Delivery) []error {
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, 7*time.Second, left)
	})
}

// A panic is a PanicError of each event, with the handler's stack.
func TestAPanicOfABatchIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []*observer.PanicError
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{
			Handled: func(h observer.Handled) {
				p, ok := errors.AsType[*observer.PanicError](h.Err)
				require.True(t, ok, "%v", h.Err)
				mu.Lock()
				defer mu.Unlock()
				told = append(told, p)
			},
		}})
		_, err := bus.SubscribeBatch(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 1}}, eventbus.Batch{},
			func(context.Context, []*eventbus.Delivery) []error { panic("poison") })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", numbered(3)...))
		time.Sleep(time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Len(t, told, 3)
		require.Equal(t, "poison", told[0].Value)
		require.Contains(t, string(told[0].Stack), "TestAPanicOfABatchIsTold")
	})
}

// Contradictions are refused with an error that names the field.
func TestRefusedBatches(t *testing.T) {
	bus := eventbustest.New(t)
	for _, c := range []struct {
		field string
		o     eventbus.SubscribeOptions
		b     eventbus.Batch
		h     eventbus.BatchHandler
	}{
		{field: "handler"},
		{field: "Batch.MaxSize", b: eventbus.Batch{MaxSize: -1}, h: allHandled},
		{field: "Batch.MaxSize", o: eventbus.SubscribeOptions{Concurrency: 1 << 33}, b: eventbus.Batch{MaxSize: 1 << 33}, h: allHandled},
		{field: "Batch.MaxBytes", b: eventbus.Batch{MaxBytes: -1}, h: allHandled},
		{field: "SubscribeOptions.Order", o: eventbus.SubscribeOptions{Order: eventbus.OrderTotal}, h: allHandled},
		{field: "SubscribeOptions.Ack", o: eventbus.SubscribeOptions{Ack: 9}, h: allHandled},
		{field: "SubscribeOptions.MaxInFlight", o: eventbus.SubscribeOptions{MaxInFlight: 99}, h: allHandled},
		{field: "SubscribeOptions.Concurrency", o: eventbus.SubscribeOptions{Concurrency: -1}, h: allHandled},
		{field: "SubscribeOptions.Lease", o: eventbus.SubscribeOptions{Lease: 1}, h: allHandled},
	} {
		c.o.Group = "g"
		_, err := bus.SubscribeBatch(t.Context(), "orders", c.o, c.b, c.h)
		var f *eventbus.FieldError
		require.ErrorAs(t, err, &f, c.field)
		require.Equal(t, c.field, f.Field)
	}
}

// A panic of a typed batch handler is no result of events that it did not get: an event
// that cannot be decoded still becomes a dead letter.
func TestPanicOfATypedBatchSparesWhatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		numbers := eventbus.Topic[int]{Name: "numbers"}
		o := eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{
			Rules: []eventbus.RetryRule{{Class: "panic", MaxAttempts: 1, Discard: true}},
		}}
		_, err := bus.SubscribeBatch(t.Context(), "numbers", o, eventbus.Batch{},
			numbers.BatchHandler(func(context.Context, []int, []*eventbus.Delivery) []error { panic("boom") }))
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "numbers",
			&eventbus.Event{ID: "bad", Payload: []byte("{")}, &eventbus.Event{ID: "good", Payload: []byte("1")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		dead := bus.Published("numbers.dlq")
		require.Len(t, dead, 1)
		why, _ := eventbus.DeadLetterOf(&dead[0])
		require.Equal(t, "bad", why.ID)
		require.Equal(t, eventbus.ReasonPermanent, why.Reason)
	})
}
