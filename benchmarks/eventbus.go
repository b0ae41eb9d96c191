package main

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// An eventbusBus is our bus, through its public API, with default options.
type eventbusBus struct{ bus *eventbus.Bus }

var _ checker = (*eventbusBus)(nil)

const (
	eventbusTopic = "orders"
	eventbusGroup = "billing"
)

func openEventbus(ctx context.Context) (bus, error) {
	b := &eventbusBus{eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})}
	stop, err := b.consume(ctx, 1, func([]byte) {}) // makes the group
	if err == nil {
		err = stop()
	}
	return b, err
}

func (b *eventbusBus) publish(ctx context.Context, payload []byte) error {
	return b.bus.Publish(ctx, eventbusTopic, &eventbus.Event{Payload: payload})
}

func (b *eventbusBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	events := make([]*eventbus.Event, len(payloads))
	for i, p := range payloads {
		events[i] = &eventbus.Event{Payload: p}
	}
	return b.bus.Publish(ctx, eventbusTopic, events...)
}

func (b *eventbusBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	o := eventbus.SubscribeOptions{Group: eventbusGroup, Concurrency: concurrency}
	s, err := b.bus.Subscribe(ctx, eventbusTopic, o, func(_ context.Context, d *eventbus.Delivery) error {
		handle(d.Payload)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() error { return s.Drain(ctx) }, nil
}

func (b *eventbusBus) unsettled(ctx context.Context) (int64, error) {
	statser, ok := backend.As[backend.Statser](b.bus.Backend())
	if !ok {
		return 0, errors.ErrUnsupported
	}
	s, err := statser.Stats(ctx, eventbusTopic, eventbusGroup)
	return s.Lag + s.InFlight + s.Delayed, err
}

func (b *eventbusBus) close(ctx context.Context) error {
	return b.bus.Shutdown(ctx)
}
