package service_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/service"
)

// Two groups inherit the timeout and the retries of the service. After SIGTERM the program drains
// them, and its exit code says how that went.
func Example() {
	ctx := context.Background()
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	if err != nil {
		log.Fatal(err)
	}
	svc, err := service.New(bus, service.Options{Defaults: eventbus.SubscribeOptions{
		Timeout: 10 * time.Second,
		Retry:   eventbus.Retry{MaxAttempts: 5, Initial: 10 * time.Millisecond},
	}})
	if err != nil {
		log.Fatal(err)
	}

	charge := func(_ context.Context, d *eventbus.Delivery) error {
		if d.Attempt == 1 {
			return errors.New("the bank is busy") // the event is redelivered later
		}
		self, _ := os.FindProcess(os.Getpid())
		return self.Signal(syscall.SIGTERM) // as Kubernetes does
	}
	audit := func(context.Context, *eventbus.Delivery) error { return nil }
	for name, g := range map[string]service.Group{
		"billing": {Topic: "payments", Handler: charge, Options: eventbus.SubscribeOptions{Concurrency: 16}},
		"audit":   {Topic: "payments", Handler: audit},
	} {
		if err := svc.Register(ctx, name, g); err != nil {
			log.Fatal(err)
		}
	}
	if err := bus.Publish(ctx, "payments", &eventbus.Event{Type: "payment.due"}); err != nil {
		log.Fatal(err)
	}

	outcome := svc.Run(ctx, 20*time.Second)
	fmt.Println(outcome)
	fmt.Println("exit code", outcome.ExitCode()) // for os.Exit
	// Output:
	// failures 1 (panics 0, timeouts 0), snoozed 0, dead-lettered 0, discarded 0, left 0
	// exit code 0
}
