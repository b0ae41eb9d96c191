package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/limiter/rate"
	"github.com/seed41896749/eventbus/observer"
)

// While a service is down, a subscription reads nothing, and its state says why. When the
// service is back, all events are handled.
func ExampleBreaker() {
	ctx, back := context.WithCancel(context.Background())
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{
		StateChanged: func(c observer.StateChanged) {
			switch {
			case c.To == observer.Limited:
				fmt.Printf("%s: %v\n", c.To, c.Err)
				back()
			case c.From == observer.Limited:
				fmt.Println(c.To)
			}
		},
	}})
	if err != nil {
		panic(err)
	}
	handled := make(chan bool)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group:   "billing",
		Retry:   eventbus.Retry{Initial: time.Millisecond},
		Limiter: limiter.NewBreaker(limiter.BreakerOptions{Failures: 0.5, Runs: 5, Pause: 100 * time.Millisecond}),
	}, func(context.Context, *eventbus.Delivery) error {
		if ctx.Err() == nil {
			return errors.New("the service is down")
		}
		handled <- true
		return nil
	})
	if err != nil {
		panic(err)
	}
	for range 10 {
		if err := bus.Publish(context.Background(), "orders", &eventbus.Event{}); err != nil {
			panic(err)
		}
	}
	for range 10 {
		<-handled
	}
	if err := bus.Shutdown(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// limited: limiter: the breaker is open for 100ms: 5 of 5 runs failed within 10s
	// running
}

// A subscription runs as many handlers as the service behind them can take, up to 64.
func ExampleAdaptive() {
	places := limiter.NewAdaptive(1, 64)
	o := eventbus.SubscribeOptions{Group: "billing", Concurrency: 64, Limiter: places}
	fmt.Println(o.Concurrency, places.State().Limit) // for a gauge
	// Output: 64 1
}

// Two subscriptions call one bank: together at most a thousand times a second, and not
// while it is down. They share one limiter, and so ask its parts in the same order.
func ExampleAll() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Slog(slog.New(slog.DiscardHandler))})
	if err != nil {
		panic(err)
	}
	breaker := limiter.NewBreaker(limiter.BreakerOptions{Runs: 2, Trials: 2}) // a trial for each subscription
	bank := limiter.All(rate.New(1000, 20), breaker)
	failed := make(chan string)
	for _, topic := range []string{"orders", "refunds"} {
		_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{
			Group: "billing", Limiter: bank,
			OnDeadLetter: func(_ *eventbus.Event, why eventbus.DeadLetter) { failed <- why.Topic },
		}, func(context.Context, *eventbus.Delivery) error {
			return eventbus.Permanent(errors.New("the bank is down"))
		})
		if err != nil {
			panic(err)
		}
		if err := bus.Publish(ctx, topic, &eventbus.Event{}); err != nil {
			panic(err)
		}
		fmt.Printf("%s failed, the breaker is %s\n", <-failed, breaker.State())
	}
	if err := bus.Shutdown(ctx); err != nil {
		panic(err)
	}
	// Output:
	// orders failed, the breaker is closed
	// refunds failed, the breaker is open
}
