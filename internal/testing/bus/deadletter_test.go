package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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

// A dead letter states its reason; an ordinary event is not a dead letter.
func TestDeadLetterOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{})
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2}},
			func(_ context.Context, d *eventbus.Delivery) error {
				_, dead := eventbus.DeadLetterOf(&d.Event)
				require.False(t, dead)
				return fmt.Errorf("run %d: %w", d.Attempt, errors.New("no"))
			})
		require.NoError(t, err)
		var got eventbus.DeadLetter
		_, err = bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "mend", DeadLetter: eventbus.DiscardDeadLetters},
			func(_ context.Context, d *eventbus.Delivery) (err error) {
				var dead bool
				got, dead = eventbus.DeadLetterOf(&d.Event)
				require.True(t, dead)
				return nil
			})
		require.NoError(t, err)
		start := time.Now()
		receipts, err := bus.PublishReceipts(t.Context(), "orders", &eventbus.Event{ID: "o-1"})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.WithinRange(t, got.LastAttempt, start.Add(800*time.Millisecond), start.Add(1200*time.Millisecond))
		got.LastAttempt = time.Time{}
		require.Equal(t, eventbus.DeadLetter{
			Reason: eventbus.ReasonExhausted, Error: "run 2: no", ErrorClass: "*errors.errorString", Attempts: 2,
			Topic: "orders", Group: "billing", ID: "o-1", Position: receipts[0].Position,
		}, got)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// tight refuses messages that are larger than most.
type tight struct {
	*inmemory.Backend
	most int
}

func (b tight) Limits() backend.Limits { return backend.Limits{Payload: b.most} }

func (b tight) Publish(ctx context.Context, msgs []*backend.Message) error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = backend.ErrTooLarge; m.Size() <= b.most {
			errs[i] = b.Backend.Publish(ctx, msgs[i:i+1])
		}
	}
	return backend.AsBatchError(errs)
}

// An event that is nearly as large as the backend allows has a dead letter, whose texts are
// shorter. Otherwise the event would run again and again.
func TestALargeEventHasADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tight{inmemory.New(inmemory.Options{}), 10_000}
		bus := eventbustest.On(t, b, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		runs := 0
		_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, func(context.Context, *eventbus.Delivery) error {
			runs++
			panic(strings.Repeat("é", 5_000))
		})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "mail", Retry: eventbus.Retry{MaxAttempts: 1}}, func(context.Context, *eventbus.Delivery) error {
			return errors.New(strings.Repeat("é", 5_000))
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1", Payload: make([]byte, 9_000)}))
		time.Sleep(time.Hour)
		synctest.Wait()
		ms, err := b.Read(t.Context(), "orders.dlq", "", 10)
		require.NoError(t, err)
		require.Len(t, ms, 2)
		for _, m := range ms {
			require.LessOrEqual(t, m.Size(), b.most)
			e := eventbus.EventOf(&m)
			why, dead := eventbus.DeadLetterOf(&e)
			require.True(t, dead)
			require.NotEmpty(t, why.ErrorClass)
			require.Len(t, e.Payload, 9_000)
		}
		require.Equal(t, 12, runs)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// An error whose methods panic, such as a nil pointer, fails its event and not the process,
// also as the value of a panic.
func TestErrorsThatPanic(t *testing.T) {
	typedNil := func() error {
		var e *fs.PathError
		return e
	}
	for name, subscribe := range map[string]func(*eventbustest.Bus, eventbus.SubscribeOptions) error{
		"single": func(bus *eventbustest.Bus, o eventbus.SubscribeOptions) error {
			_, err := bus.Subscribe(t.Context(), "orders", o, func(context.Context, *eventbus.Delivery) error { return typedNil() })
			return err
		},
		"batch": func(bus *eventbustest.Bus, o eventbus.SubscribeOptions) error {
			_, err := bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{}, func(_ context.Context, ds []*eventbus.Delivery) []error {
				return []error{typedNil()}
			})
			return err
		},
		"panic": func(bus *eventbustest.Bus, o eventbus.SubscribeOptions) error {
			_, err := bus.Subscribe(t.Context(), "orders", o, func(context.Context, *eventbus.Delivery) error { panic(typedNil()) })
			return err
		},
		"late panic of a batch": func(bus *eventbustest.Bus, o eventbus.SubscribeOptions) error {
			o.Timeout = time.Second
			_, err := bus.SubscribeBatch(t.Context(), "orders", o, eventbus.Batch{}, func(context.Context, []*eventbus.Delivery) []error {
				time.Sleep(2 * time.Second)
				panic(typedNil())
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := eventbustest.NewWith(t, eventbus.Options{})
				require.NoError(t, subscribe(bus, eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 2}}))
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
				require.NoError(t, bus.WaitIdle(t.Context()))
				letters := bus.Published("orders.dlq")
				require.Len(t, letters, 1)
				letter, _ := eventbus.DeadLetterOf(&letters[0])
				require.Contains(t, []string{"panic", "timeout"}, letter.ErrorClass) // timeout: of the late panic
			})
		})
	}
}

// An event that stands at the position of an earlier one, in a topic that was deleted and
// created again, has a dead letter of its own.
func TestDeadLettersOfATopicMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		bus := eventbustest.On(t, reused{b}, eventbus.Options{})
		for _, id := range []string{"old", "new"} {
			s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Second}, func(context.Context, *eventbus.Delivery) error {
				return eventbus.Permanent(errors.New("no"))
			})
			require.NoError(t, err)
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
			time.Sleep(time.Second)
			require.NoError(t, s.Drain(t.Context()))
			require.NoError(t, b.DeleteTopic(t.Context(), "orders"))
		}
		letters, err := b.Read(t.Context(), "orders.dlq", "", 10)
		require.NoError(t, err)
		require.Len(t, letters, 2)
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// reused is a backend whose messages all have the same position, as have the first messages
// of a topic on NATS that was made again.
type reused struct{ *inmemory.Backend }

func (b reused) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return reusedSource{s}, err
}

type reusedSource struct{ backend.Source }

func (s reusedSource) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, limit, maxBytes)
	for i := range ds {
		ds[i].Position = "1"
	}
	return ds, err
}

// damaging is a backend in memory that damages deliveries by their ID.
type damaging struct{ *inmemory.Backend }

func (b damaging) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return damagingSource{s, s.(backend.Delayer), s.(backend.Extender)}, nil
}

type damagingSource struct {
	backend.Source
	backend.Delayer
	backend.Extender
}

func (s damagingSource) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, n, maxBytes)
	for i := range ds {
		switch ds[i].ID {
		case "unreadable":
			ds[i].Err = errors.New("not an entry")
		case "no-verdict":
			ds[i].Attempt = 1000
		}
	}
	return ds, err
}

// codeError is an error of the program that names its class.
type codeError struct{}

func (codeError) Error() string { return "declined" }

func (codeError) ErrorType() string { return "card_declined" }

// hostileError is an error of the program with a broken method.
type hostileError struct{}

func (hostileError) Error() string { return "hostile" }

func (hostileError) ErrorType() string { panic("hostile") }

// Each dead letter has a meaningful class, even if no handler got its event.
func TestClassesOfDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.On(t, damaging{inmemory.New(inmemory.Options{})}, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
		classes := map[string]string{}
		_, err := bus.Subscribe(t.Context(), "orders.dlq", eventbus.SubscribeOptions{Group: "g", DeadLetter: eventbus.DiscardDeadLetters},
			func(_ context.Context, d *eventbus.Delivery) error {
				why, _ := eventbus.DeadLetterOf(&d.Event)
				classes[why.ID] = why.ErrorClass
				return nil
			})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
			Group: "billing", MaxReceive: 10_000, DeadLetterExpired: true, OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 1},
		}, func(_ context.Context, d *eventbus.Delivery) error {
			switch d.ID {
			case "card_declined":
				return eventbus.Permanent(codeError{})
			case "bus_test.hostileError":
				return hostileError{}
			case "retry":
				return eventbus.RetryAfter(nil, time.Second)
			}
			return errors.New("first of its key")
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders",
			&eventbus.Event{ID: "unreadable", Key: "a"}, &eventbus.Event{ID: "no-verdict", Key: "b"}, &eventbus.Event{ID: "too-large", Key: "c", Payload: make([]byte, 20_000)},
			&eventbus.Event{ID: "expired", Key: "d", Time: time.Now().Add(-time.Hour), TTL: time.Second}, &eventbus.Event{ID: "*errors.errorString", Key: "e"},
			&eventbus.Event{ID: "key-failed", Key: "e"}, &eventbus.Event{ID: "card_declined", Key: "f"}, &eventbus.Event{ID: "bus_test.hostileError", Key: "g"}, &eventbus.Event{ID: "retry", Key: "h"},
		))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, classes, 9)
		for id, class := range classes {
			require.Equal(t, id, class)
		}
		require.NoError(t, bus.Shutdown(t.Context()))
	})
}

// A Nack without a cause and a batch handler with a wrong number of results have classes too.
func TestClassesOfSettlementsWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := eventbustest.New(t)
		classes := map[string]string{}
		options := func(class string) eventbus.SubscribeOptions {
			return eventbus.SubscribeOptions{Group: class, Retry: eventbus.Retry{MaxAttempts: 1}, OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { classes[class] = why.ErrorClass }}
		}
		_, err := bus.SubscribeManual(t.Context(), "orders", options("nack"), func(ctx context.Context, d *eventbus.ManualDelivery) error { return d.Nack(ctx, nil) })
		require.NoError(t, err)
		_, err = bus.SubscribeBatch(t.Context(), "orders", options("batch-results"), eventbus.Batch{}, func(context.Context, []*eventbus.Delivery) []error { return make([]error, 7) })
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		synctest.Wait()
		require.Equal(t, map[string]string{"nack": "nack", "batch-results": "batch-results"}, classes)
	})
}
