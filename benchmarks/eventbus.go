package main

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// An eventbusBus measures the bus of this project, through its public API and with default
// options.
type eventbusBus struct {
	bus      *eventbus.Bus
	attached []string // topics that attachAll has subscribed to
}

var (
	_ checker = (*eventbusBus)(nil)
	_ wide    = (*eventbusBus)(nil)
)

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

func openEventbusNATS(ctx context.Context, e env) (bus, error) {
	u, err := url.Parse(e.nats.url)
	if err != nil {
		return nil, err
	}
	u.RawQuery = "max_bytes=2GiB" // the default, 256 MiB, is too small for the backlog of a memory cell
	b, err := nats.Open(ctx, u)
	if err != nil {
		return nil, err
	}
	on, err := openEventbus(ctx, b)
	return natsEventbusBus{on, e.nats}, err
}

// A natsEventbusBus measures the bus on NATS. It asks the server how many events are
// unsettled, because the backend does not know how many are in flight.
type natsEventbusBus struct {
	*eventbusBus
	server *natsServer
}

var _ checker = natsEventbusBus{}

func (b natsEventbusBus) unsettled(ctx context.Context) (int64, error) {
	return b.server.unsettled(ctx)
}

// lent is a backend whose Close also closes the client, which the benchmark has given to
// the backend.
type lent struct {
	backend.Backend
	client *redis.Client
}

// Unwrap returns the wrapped backend.
func (l lent) Unwrap() backend.Backend { return l.Backend }

// Close implements [backend.Backend].
func (l lent) Close() error { return errors.Join(l.Backend.Close(), l.client.Close()) }

func openEventbus(ctx context.Context, on backend.Backend) (*eventbusBus, error) {
	bus, err := eventbus.New(on, eventbus.Options{})
	if err != nil {
		return nil, err
	}
	b := &eventbusBus{bus: bus}
	stop, err := b.consume(ctx, 1, func([]byte) {}) // makes the group, which exists until the end of the trial
	if err == nil {
		err = stop()
	}
	return b, err
}

func (b *eventbusBus) publish(ctx context.Context, payload []byte) error {
	return b.bus.Publish(ctx, eventbusTopic, &eventbus.Event{Payload: payload})
}

func (b *eventbusBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	return b.publishAll(ctx, eventbusTopic, payloads)
}

func (b *eventbusBus) publishTo(ctx context.Context, topic int, payloads [][]byte) error {
	return b.publishAll(ctx, topicName(topic), payloads)
}

func (b *eventbusBus) publishAll(ctx context.Context, topic string, payloads [][]byte) error {
	events := make([]*eventbus.Event, len(payloads))
	for i, p := range payloads {
		events[i] = &eventbus.Event{Payload: p}
	}
	return b.bus.Publish(ctx, topic, events...)
}

func (b *eventbusBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	return b.attach(ctx, eventbusTopic, concurrency, handle)
}

func (b *eventbusBus) attachAll(ctx context.Context, n int, handle func([]byte)) (func() error, error) {
	return attachEach(n, func(topic int) (func() error, error) { return b.attach(ctx, topicName(topic), 1, handle) })
}

func (b *eventbusBus) attach(ctx context.Context, topic string, concurrency int, handle func([]byte)) (func() error, error) {
	o := eventbus.SubscribeOptions{Group: eventbusGroup, Concurrency: concurrency}
	s, err := b.bus.Subscribe(ctx, topic, o, func(_ context.Context, d *eventbus.Delivery) error {
		handle(d.Payload)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(b.attached, topic) {
		b.attached = append(b.attached, topic)
	}
	return func() error { return s.Drain(ctx) }, nil
}

func (b *eventbusBus) unsettled(ctx context.Context) (n int64, err error) {
	for _, topic := range b.attached {
		s, err := backend.StatsOf(ctx, b.bus.Backend(), topic, eventbusGroup)
		if err == nil && s.Lag == backend.Unknown {
			err = errors.New("the backend does not know its lag")
		}
		if err != nil {
			return 0, err
		}
		n += s.Lag + s.Unacked
	}
	return n, nil
}

func (b *eventbusBus) close(ctx context.Context) error {
	return b.bus.Shutdown(ctx)
}
