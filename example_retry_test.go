package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

var errBusy = errors.New("the payment service is busy")

// The delay depends on the error: a busy service is tried again after a minute, and any other
// failure after a second more with each attempt.
func ExampleRetry() {
	retry := eventbus.Retry{
		Delay: func(d *eventbus.Delivery, err error) time.Duration {
			if errors.Is(err, errBusy) {
				return time.Minute
			}
			return time.Duration(d.Attempt) * time.Second
		},
	}
	second := &eventbus.Delivery{Event: eventbus.Event{Type: "order.placed"}, Attempt: 2}
	fmt.Println(retry.Delay(second, errBusy), retry.Delay(second, errors.New("disk")))
	// Output: 1m0s 2s
}

// The program names its errors once, and retries them by name: a declined card never, a busy bank
// once a minute. The dead letter contains the name too.
func ExampleRetryRule() {
	errDeclined, errBankBusy := errors.New("card declined"), errors.New("bank busy")
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
		ErrorClasses: []eventbus.ErrorClass{
			{Name: "declined", Is: func(err error) bool { return errors.Is(err, errDeclined) }},
			{Name: "bank-busy", Is: func(err error) bool { return errors.Is(err, errBankBusy) }},
		},
	})
	if err != nil {
		panic(err)
	}
	dead := make(chan eventbus.DeadLetter, 1)
	_, err = bus.Subscribe(context.Background(), "orders", eventbus.SubscribeOptions{
		Group: "billing",
		Retry: eventbus.Retry{Rules: []eventbus.RetryRule{
			{Class: "declined", MaxAttempts: 1},
			{Class: "bank-busy", MaxAttempts: -1, Initial: time.Minute, Max: time.Minute},
		}},
		OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { dead <- why },
	}, func(context.Context, *eventbus.Delivery) error {
		return fmt.Errorf("charging o-1: %w", errDeclined)
	})
	if err != nil {
		panic(err)
	}
	if err := bus.Publish(context.Background(), "orders", &eventbus.Event{TTL: time.Hour}); err != nil {
		panic(err)
	}
	why := <-dead
	fmt.Println(why.ErrorClass, "after", why.Attempts, "attempt:", why.Error)
	if err := bus.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	// Output: declined after 1 attempt: charging o-1: card declined
}

// A login code is worthless after a while, so its event has a rule of its own: three quick
// attempts and no dead letter. Other events get the attempts of the subscription, 12 by default.
// On the last attempt the handler falls back to mail.
func ExampleDelivery_LastAttempt() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	sent := make(chan string)
	_, err = bus.Subscribe(ctx, "messages", eventbus.SubscribeOptions{Group: "sender"},
		func(_ context.Context, d *eventbus.Delivery) error {
			way := "phone"
			if d.LastAttempt() {
				way = "mail"
			}
			sent <- fmt.Sprintf("%s: attempt %d of %d by %s, redelivered: %t", d.Type, d.Attempt, d.MaxAttempts, way, d.Redelivered)
			if d.Type == "code" && way == "phone" {
				return errors.New("the phone is off")
			}
			return nil
		})
	if err != nil {
		panic(err)
	}
	quick := &eventbus.RetryRule{MaxAttempts: 3, Initial: time.Millisecond, Discard: true}
	err = bus.Publish(ctx, "messages", &eventbus.Event{Type: "offer"}, &eventbus.Event{Type: "code", Retry: quick})
	if err != nil {
		panic(err)
	}
	for range 4 {
		fmt.Println(<-sent)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// offer: attempt 1 of 12 by phone, redelivered: false
	// code: attempt 1 of 3 by phone, redelivered: false
	// code: attempt 2 of 3 by phone, redelivered: true
	// code: attempt 3 of 3 by mail, redelivered: true
	// <nil>
}

// Options.Timeout bounds the runs of every subscription of the bus. With LeaveTimeouts, an event
// whose run timed out is redelivered when its lease has expired. Meanwhile, later events of its
// key are handled.
func ExampleOptions_timeout() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Timeout:  10 * time.Millisecond,
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	runs := make(chan string)
	_, err = bus.Subscribe(ctx, "reports", eventbus.SubscribeOptions{
		Group: "printer", Lease: 500 * time.Millisecond, LeaveTimeouts: true,
	}, func(ctx context.Context, d *eventbus.Delivery) error {
		if d.ID == "may" && !d.Redelivered {
			<-ctx.Done() // the printer is stuck
			runs <- fmt.Sprintf("%s: %v", d.ID, context.Cause(ctx))
			return ctx.Err()
		}
		runs <- fmt.Sprintf("%s: printed by attempt %d", d.ID, d.Attempt)
		return nil
	})
	if err != nil {
		panic(err)
	}
	err = bus.Publish(ctx, "reports", &eventbus.Event{ID: "may", Key: "ada"}, &eventbus.Event{ID: "june", Key: "ada"})
	if err != nil {
		panic(err)
	}
	for range 3 {
		fmt.Println(<-runs)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// may: eventbus: handler ran longer than 10ms
	// june: printed by attempt 1
	// may: printed by attempt 2
	// <nil>
}

// A screen shows the scores of the last minute. Its handler gets neither expired events nor
// events above MaxReceive. Both become dead letters that state the reason.
func ExampleSubscribeOptions_maxReceive() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		panic(err)
	}
	fate := make(chan string)
	_, err = bus.Subscribe(ctx, "scores", eventbus.SubscribeOptions{
		Group:             "screen",
		MaxReceive:        4 << 10,
		DeadLetterExpired: true, // by default expired events are discarded
		OnDeadLetter:      func(e *eventbus.Event, why eventbus.DeadLetter) { fate <- e.ID + " " + why.Reason },
	}, func(_ context.Context, d *eventbus.Delivery) error {
		fate <- d.ID + " shown"
		return nil
	})
	if err != nil {
		panic(err)
	}
	for _, e := range []*eventbus.Event{
		{ID: "final", TTL: time.Minute, Payload: []byte("2:1")},
		{ID: "half-time", TTL: time.Minute, Payload: []byte("1:1"), Time: time.Now().Add(-time.Hour)},
		{ID: "film", TTL: time.Minute, Payload: make([]byte, 100<<10)},
	} {
		if err := bus.Publish(ctx, "scores", e); err != nil {
			panic(err)
		}
		fmt.Println(<-fate)
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// final shown
	// half-time expired
	// film too-large
	// <nil>
}
