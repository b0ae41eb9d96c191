package main

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A watermillNATSBus runs the benchmarks on Watermill over JetStream, with Watermill's
// defaults: an acknowledgement waits for the server's confirmation. A subscription has only
// one message in flight, so there is one subscription for each handler that runs concurrently.
type watermillNATSBus struct {
	server    *natsServer
	conn      *natsgo.Conn
	publisher *wmnats.Publisher
}

var _ checker = (*watermillNATSBus)(nil)

func openWatermillNATS(ctx context.Context, e env) (bus, error) {
	conn, err := natsgo.Connect(e.nats.url)
	if err != nil {
		return nil, err
	}
	b := &watermillNATSBus{server: e.nats, conn: conn}
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = makeStream(ctx, js, natsSubject)
	}
	if err == nil {
		b.publisher, err = wmnats.NewPublisher(wmnats.PublisherConfig{Conn: conn, Logger: watermill.NopLogger{}})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

func (b *watermillNATSBus) publish(_ context.Context, payload []byte) error {
	return b.publisher.Publish(natsSubject, message.NewMessage(watermill.NewUUID(), payload))
}

func (b *watermillNATSBus) publishBatch(_ context.Context, payloads [][]byte) error {
	return b.publisher.Publish(natsSubject, watermillMessages(payloads)...)
}

func (b *watermillNATSBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	conn, err := natsgo.Connect(b.server.url)
	if err != nil {
		return nil, err
	}
	subscriber, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		Conn: conn, Logger: watermill.NopLogger{}, ResourceInitializer: wmnats.GroupedConsumer(natsDurable),
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for range concurrency {
		messages, err := subscriber.Subscribe(ctx, natsSubject)
		if err != nil {
			cancel()
			return nil, errors.Join(err, subscriber.Close())
		}
		workers.Go(func() {
			for m := range messages {
				handle(m.Payload)
				m.Ack()
			}
		})
	}
	return func() error {
		err := b.drained(ctx)
		cancel()
		err = errors.Join(err, subscriber.Close())
		workers.Wait()
		conn.Close()
		return err
	}, nil
}

// drained waits until the server has all acknowledgements. Ack returns before the server
// has its acknowledgement, and closing the connection too early would lose it.
func (b *watermillNATSBus) drained(ctx context.Context) error {
	_, err := unsettled(ctx, b)
	return err
}

func (b *watermillNATSBus) unsettled(ctx context.Context) (int64, error) {
	return b.server.unsettled(ctx)
}

func (b *watermillNATSBus) close(context.Context) error {
	err := b.publisher.Close()
	b.conn.Close()
	return err
}

// watermillMessages returns Watermill messages with these payloads.
func watermillMessages(payloads [][]byte) []*message.Message {
	ms := make([]*message.Message, len(payloads))
	for i, p := range payloads {
		ms[i] = message.NewMessage(watermill.NewUUID(), p)
	}
	return ms
}
