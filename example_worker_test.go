package eventbus_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
)

// A service with 16 workers, ten seconds for each run, and five attempts. After SIGTERM it
// waits for running handlers, within Options.DrainTimeout.
func Example_worker() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{DrainTimeout: 20 * time.Second})
	if err != nil {
		panic(err)
	}

	var open sync.WaitGroup
	charge := func(_ context.Context, d *eventbus.Delivery) error {
		if d.Attempt == 1 {
			return errors.New("the bank is busy") // the event is redelivered later
		}
		open.Done()
		return nil
	}
	_, err = bus.Subscribe(ctx, "payments", eventbus.SubscribeOptions{
		Group:       "billing",
		Concurrency: 16,
		Timeout:     10 * time.Second,
		Retry:       eventbus.Retry{MaxAttempts: 5, Initial: 10 * time.Millisecond, Max: time.Minute},
	}, charge)
	if err != nil {
		log.Fatal(err)
	}
	open.Add(100)
	go func() { // another program
		for range 100 {
			if err := bus.Publish(ctx, "payments", &eventbus.Event{Type: "payment.due"}); err != nil {
				log.Fatal(err)
			}
		}
		open.Wait()
		self, _ := os.FindProcess(os.Getpid())
		self.Signal(syscall.SIGTERM)
	}()

	fmt.Println(bus.Run(ctx))
	// Output: <nil>
}
