package eventbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// Options.Timeout bounds the runs of every subscription of the bus. With LeaveTimeouts an
// event whose run timed out is redelivered when its lease has expired. Later events of its
// key are handled meanwhile.
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
