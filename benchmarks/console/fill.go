package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// batch is the number of events of a Publish.
const batch = 500

var errDead = errors.New("the customer has no address")

// fill makes all groups, the dead letters of group-0, and then the events, which no group gets.
func fill(ctx context.Context, bus *eventbus.Bus, events, letters int) error {
	for i := range dead {
		topic := "topic-" + strconv.Itoa(i)
		sub, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: "group-0", Concurrency: 32, Retry: eventbus.Retry{MaxAttempts: 1}},
			func(context.Context, *eventbus.Delivery) error { return errDead })
		if err != nil {
			return err
		}
		if err := publish(ctx, bus, topic, letters/dead); err != nil {
			return err
		}
		for {
			s, err := sub.Stats(ctx)
			if err != nil {
				return err
			}
			if s.Lag == 0 && s.Unacked == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := sub.Drain(ctx); err != nil {
			return err
		}
	}
	for i := range topics {
		topic := "topic-" + strconv.Itoa(i)
		for g := range groups {
			if err := backend.DeclareGroup(ctx, bus.Backend(), topic, "group-"+strconv.Itoa(g), backend.StartLatest); err != nil {
				return err
			}
		}
		if err := publish(ctx, bus, topic, events/topics); err != nil {
			return err
		}
	}
	return nil
}

func publish(ctx context.Context, bus *eventbus.Bus, topic string, n int) error {
	for first := 0; first < n; first += batch {
		var es []*eventbus.Event
		for i := first; i < min(first+batch, n); i++ {
			es = append(es, &eventbus.Event{Type: "order.placed", Key: strconv.Itoa(i % 997), Payload: fmt.Appendf(nil, `{"customer":"c-%d","amount":%d}`, i%997, i)})
		}
		if err := bus.Publish(ctx, topic, es...); err != nil {
			return err
		}
	}
	return nil
}
