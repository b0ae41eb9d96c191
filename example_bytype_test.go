package eventbus_test

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus"
)

func ExampleByType() {
	placed := eventbus.Topic[int]{Name: "orders", Type: "order.placed"}
	h := eventbus.ByType(map[string]eventbus.Handler{
		placed.Type: placed.Handler(func(_ context.Context, items int, _ *eventbus.Delivery) error {
			fmt.Println("placed:", items)
			return nil
		}),
		"order.cancelled": func(_ context.Context, d *eventbus.Delivery) error {
			fmt.Println("cancelled:", d.Subject)
			return nil
		},
	}, nil)
	ctx := context.Background()
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.placed", Payload: []byte("3")}}))
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.cancelled", Subject: "o-1"}}))
	fmt.Println(h(ctx, &eventbus.Delivery{Event: eventbus.Event{Type: "order.lost"}}))
	// Output:
	// placed: 3
	// <nil>
	// cancelled: o-1
	// <nil>
	// eventbus: no handler for events of type "order.lost"
}
