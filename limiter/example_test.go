package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
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
		Limiter: limiter.NewBreaker(limiter.BreakerOptions{Failures: 0.5, Runs: 5, Pause: 10 * time.Millisecond}),
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
	// limited: limiter: the breaker is open for 10ms: 5 of 5 runs failed within 10s
	// running
}

// A subscription runs as many handlers as the service behind them can take, up to 64.
func ExampleAdaptive() {
	places := limiter.NewAdaptive(1, 64)
	o := eventbus.SubscribeOptions{Group: "billing", Concurrency: 64, Limiter: places}
	fmt.Println(o.Concurrency, places.State().Limit) // for a gauge
	// Output: 64 1
}
