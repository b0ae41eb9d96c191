package scale_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/scale"
)

// A subscription begins with one handler. While events wait, the Autoscaler adds handlers. The
// limiter keeps the number of held events at the number that the service behind the handlers
// can take.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		panic(err)
	}
	var running atomic.Int64
	four := make(chan bool)
	charge := func(context.Context, *eventbus.Delivery) error {
		if running.Add(1) == 4 {
			close(four)
		}
		<-four // so the events need four handlers
		return nil
	}
	sub, err := bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", Concurrency: 1, MaxConcurrency: 16,
		Limiter: limiter.NewAdaptive(4, 16),
	}, charge)
	if err != nil {
		panic(err)
	}
	go scale.Autoscaler{
		Poll: 10 * time.Millisecond, // in a service leave the defaults: Poll 5 s, hysteresis 10 s, cooldown 30 s
		Strategy: func(scale.Group) scale.Strategy {
			return scale.Stabilized(scale.Backlog{Up: 2, Down: 0.5}, 20*time.Millisecond, 20*time.Millisecond)
		},
		Decided: func(d scale.Decision) {
			slog.Debug("scale", "group", d.Group, "change", d.Change, "done", d.Done, "why", d.Why, "error", d.Err)
		},
	}.Run(ctx, sub)
	for range 100 {
		if err := bus.Publish(ctx, "orders", &eventbus.Event{}); err != nil {
			panic(err)
		}
	}
	<-four
	fmt.Println("four handlers run")
	stop()
	if err := bus.Shutdown(context.WithoutCancel(ctx)); err != nil {
		panic(err)
	}
	// Output: four handlers run
}
