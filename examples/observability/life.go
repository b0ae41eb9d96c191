package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
	"github.com/seed41896749/eventbus/redisstream"
)

var errBank = errors.New("the bank is closed")

// printLife lets one event fail twice and become a dead letter, redrives it, and prints the
// trace and the metrics. The topic is new for each call.
func printLife(ctx context.Context, url string, out io.Writer) error {
	i, err := newInstruments(telemetry.Options{
		ContinueTrace: true,
		ErrorClasses:  []eventbus.ErrorClass{{Name: "bank-closed", Is: func(err error) bool { return errors.Is(err, errBank) }}},
	})
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
	b := &bank{}
	for _, step := range []func() error{
		func() error { return live(ctx, i, bus, topic, b) },
		func() error { return redrive(ctx, i, bus, topic, b) },
	} {
		if err := step(); err != nil {
			return errors.Join(err, bus.Shutdown(ctx))
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return bus.Shutdown(context.WithoutCancel(ctx))
		}
	}
	fmt.Fprintln(out, "trace:")
	i.printTree(out)
	fmt.Fprintln(out, "\nmetrics:")
	return errors.Join(i.printMetrics(out), remove(ctx, bus, topic), bus.Shutdown(ctx))
}

// remove deletes the topic and its dead letters, which nobody reads anymore.
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

// A bank refuses charges until it is opened.
type bank struct{ open atomic.Bool }

func (b *bank) charge(context.Context, *eventbus.Delivery) error {
	if !b.open.Load() {
		return errBank
	}
	return nil
}

// redrive opens the bank, and sends the event again.
func redrive(ctx context.Context, i *instruments, bus *eventbus.Bus, topic string, b *bank) error {
	b.open.Store(true)
	letters, err := deadletter.Open(bus.Backend(), topic+".dlq")
	if err != nil {
		return err
	}
	report, err := letters.Redrive(ctx, deadletter.Redrive{Edit: i.redriving(ctx)})
	if err == nil && report.Redriven != 1 {
		err = fmt.Errorf("redriven %d letters, want 1", report.Redriven)
	}
	return err
}

// redriving returns a function that makes a span of a redrive, in the trace of the event.
// The next run of the event is below this span.
func (i *instruments) redriving(ctx context.Context) func(m *backend.Message, l *deadletter.Letter) error {
	return func(m *backend.Message, l *deadletter.Letter) error {
		w3c, carrier := propagation.TraceContext{}, propagation.MapCarrier{"traceparent": m.Headers.Get("traceparent")}
		ctx, span := i.tracers.Tracer("operator").Start(w3c.Extract(ctx, carrier), "redrive "+l.Topic)
		defer span.End()
		w3c.Inject(ctx, carrier)
		m.Headers.Set("traceparent", carrier["traceparent"])
		return nil
	}
}

// live publishes the event below a span of the program.
func live(ctx context.Context, i *instruments, bus *eventbus.Bus, topic string, b *bank) error {
	_, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{
		Group: "billing", Retry: eventbus.Retry{MaxAttempts: 2, Initial: 100 * time.Millisecond},
	}, b.charge)
	if err != nil {
		return err
	}
	ctx, span := i.tracers.Tracer("shop").Start(ctx, "POST /checkout")
	defer span.End()
	return bus.Publish(ctx, topic, &eventbus.Event{Type: "order.placed", Payload: []byte("three apples")})
}
