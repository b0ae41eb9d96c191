package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/redisstream"
)

var errBank = errors.New("the bank is closed")

// printLife lets one event fail twice and become a dead letter, and prints the trace and
// the metrics. The topic is new for each call.
func printLife(ctx context.Context, url string, out io.Writer) error {
	i, err := newInstruments(telemetry.Options{ContinueTrace: true})
	if err != nil {
		return err
	}
	settled := make(chan observer.Settled, 1)
	watch := observer.Join(observer.Slog(nil), observer.Observer{Settled: func(e observer.Settled) { settled <- e }})
	bus, err := eventbus.Open(ctx, url, i.options(watch), inmemory.Driver{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return err
	}
	stop, err := i.telemetry.Watch(bus)
	if err != nil {
		return err
	}
	defer stop()
	topic := "orders-" + uuid.NewString()[:8]
	if err := live(ctx, i, bus, topic); err != nil {
		return errors.Join(err, bus.Shutdown(ctx))
	}
	select {
	case <-settled:
	case <-ctx.Done():
		return bus.Shutdown(context.WithoutCancel(ctx))
	}
	fmt.Fprintln(out, "trace:")
	i.printTree(out)
	fmt.Fprintln(out, "\nmetrics:")
	return errors.Join(i.printMetrics(out), remove(ctx, bus, topic), bus.Shutdown(ctx))
}

// remove deletes the topic and its dead letters, which nobody reads any more.
func remove(ctx context.Context, bus *eventbus.Bus, topic string) error {
	for _, s := range bus.Subscriptions() {
		if err := s.Drain(ctx); err != nil {
			return err
		}
	}
	admin, ok := backend.As[backend.Admin](bus.Backend())
	if !ok {
		return nil
	}
	return errors.Join(admin.DeleteTopic(ctx, topic), admin.DeleteTopic(ctx, topic+".dlq"))
}

// live publishes the event below a span of the program.
func live(ctx context.Context, i *instruments, bus *eventbus.Bus, topic string) error {
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{
		Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2, Initial: 100 * time.Millisecond},
	}, func(context.Context, *eventbus.Delivery) error { return errBank })
	if err != nil {
		return err
	}
	ctx, span := i.tracers.Tracer("shop").Start(ctx, "POST /checkout")
	defer span.End()
	return bus.Publish(ctx, topic, &eventbus.Event{Type: "order.placed", Payload: []byte("three apples")})
}
