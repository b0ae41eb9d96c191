package deadletter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// sell publishes an order for each price, and waits until all orders are dead letters,
// because their prices are not numbers. The channel has the prices that are charged later.
func sell(ctx context.Context, prices ...string) (*eventbus.Bus, <-chan string) {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Slog(slog.New(slog.DiscardHandler))})
	if err != nil {
		panic(err)
	}
	charged, dead := make(chan string), make(chan bool)
	_, err = bus.Subscribe(ctx, "orders", eventbus.SubscribeOptions{
		Group: "billing", OnDeadLetter: func(*eventbus.Event, eventbus.DeadLetter) { dead <- true },
	}, func(_ context.Context, d *eventbus.Delivery) error {
		if _, err := strconv.ParseFloat(string(d.Payload), 64); err != nil {
			return eventbus.Permanent(err)
		}
		charged <- string(d.Payload)
		return nil
	})
	if err != nil {
		panic(err)
	}
	for _, price := range prices {
		if err := bus.Publish(ctx, "orders", &eventbus.Event{Payload: []byte(price)}); err != nil {
			panic(err)
		}
		<-dead
	}
	return bus, charged
}

// A till published prices with a comma, which billing cannot read. Redrive repairs them. A
// dry run counts the letters. Two letters are a trial, and then the others follow.
func ExampleTopic_Redrive() {
	ctx := context.Background()
	bus, charged := sell(ctx, "12,50", "9,95", "0,80")
	letters, err := deadletter.Open(bus.Backend(), "orders.dlq")
	if err != nil {
		panic(err)
	}
	repair := deadletter.Redrive{
		Filter: deadletter.Filter{Group: "billing", Reason: eventbus.ReasonPermanent},
		Rate:   100, // letters per second
		Edit: func(m *backend.Message, _ *deadletter.Letter) error {
			m.Payload = bytes.ReplaceAll(m.Payload, []byte(","), []byte("."))
			return nil
		},
	}
	dry, trial := repair, repair
	dry.DryRun, trial.Limit = true, 2
	for _, r := range []deadletter.Redrive{dry, trial, repair} {
		report, err := letters.Redrive(ctx, r)
		fmt.Println("letters:", report.Redriven, err)
		for n := report.Redriven; n > 0 && !r.DryRun; n-- {
			fmt.Println("charged:", <-charged)
		}
	}
	fmt.Println(bus.Shutdown(ctx))
	// Output:
	// letters: 3 <nil>
	// letters: 2 <nil>
	// charged: 12.50
	// charged: 9.95
	// letters: 1 <nil>
	// charged: 0.80
	// <nil>
}
