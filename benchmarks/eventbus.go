package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/redisstream"
)

// An eventbusBus is our bus, through its public API, with default options.
type eventbusBus struct{ bus *eventbus.Bus }

var _ checker = (*eventbusBus)(nil)

const (
	eventbusTopic = "orders"
	eventbusGroup = "billing"
)

func openEventbusMemory(ctx context.Context, _ env) (bus, error) {
	return openEventbus(ctx, inmemory.New(inmemory.Options{}))
}

func openEventbusRedis(ctx context.Context, e env) (bus, error) {
	client := redis.NewClient(&redis.Options{Addr: e.redis.addr})
	b, err := redisstream.New(client, redisstream.Options{})
	if err != nil {
		return nil, err
	}
	return openEventbus(ctx, lent{b, client})
}

// lent is a backend that closes the client that it was lent.
type lent struct {
	backend.Backend
	client *redis.Client
}

// Unwrap returns what it wraps.
func (l lent) Unwrap() backend.Backend { return l.Backend }

// Close implements [backend.Backend].
func (l lent) Close() error { return errors.Join(l.Backend.Close(), l.client.Close()) }

func openEventbus(ctx context.Context, on backend.Backend) (bus, error) {
	b := &eventbusBus{eventbus.New(on, eventbus.Options{})}
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
	if err == nil && s.Lag == backend.Unknown {
		err = errors.New("the backend does not know its lag")
	}
	return s.Lag + s.InFlight + s.Delayed, err
}

func (b *eventbusBus) close(ctx context.Context) error {
	return b.bus.Shutdown(ctx)
}
