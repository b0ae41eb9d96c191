package main

import (
	"context"
	"errors"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A rawNATSBus is the ceiling on NATS: nats.go's jetstream package, with nothing
// around the payload. Handlers take from a channel that Consume fills, and each
// message is acknowledged one way.
type rawNATSBus struct {
	server   *natsServer
	conn     *natsgo.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	ahead    int // messages of one pull
}

var (
	_ checker = (*rawNATSBus)(nil)
	_ wide    = (*rawNATSBus)(nil)
)

const (
	natsSubject = "orders"
	natsDurable = "billing"
	natsAhead   = 1000 // messages of one pull, at most; the default is 500
)

func openRawNATS(ctx context.Context, e env) (bus, error) {
	conn, err := natsgo.Connect(e.nats.url)
	if err != nil {
		return nil, err
	}
	b := &rawNATSBus{server: e.nats, conn: conn, ahead: e.ahead(natsAhead)}
	if b.js, err = jetstream.New(conn); err == nil {
		b.consumer, err = makeDurable(ctx, b.js, natsSubject)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// makeStream makes a stream with files.
func makeStream(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	return js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage})
}

func makeDurable(ctx context.Context, js jetstream.JetStream, stream string) (jetstream.Consumer, error) {
	s, err := makeStream(ctx, js, stream)
	if err != nil {
		return nil, err
	}
	return s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: natsDurable, AckPolicy: jetstream.AckExplicitPolicy})
}

func (b *rawNATSBus) publish(ctx context.Context, payload []byte) error {
	_, err := b.js.Publish(ctx, natsSubject, payload)
	return err
}

func (b *rawNATSBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	return b.publishAll(ctx, natsSubject, payloads)
}

func (b *rawNATSBus) publishTo(ctx context.Context, topic int, payloads [][]byte) error {
	return b.publishAll(ctx, topicName(topic), payloads)
}

func (b *rawNATSBus) publishAll(ctx context.Context, subject string, payloads [][]byte) error {
	acks := make([]jetstream.PubAckFuture, len(payloads))
	for i, p := range payloads {
		var err error
		if acks[i], err = b.js.PublishAsync(subject, p); err != nil {
			return err
		}
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *rawNATSBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	return b.attach(ctx, b.consumer, concurrency, handle)
}

func (b *rawNATSBus) attachAll(ctx context.Context, n int, handle func([]byte)) (func() error, error) {
	return attachEach(n, func(topic int) (func() error, error) {
		consumer, err := makeDurable(ctx, b.js, topicName(topic))
		if err != nil {
			return nil, err
		}
		return b.attach(ctx, consumer, 1, handle)
	})
}

func (b *rawNATSBus) attach(ctx context.Context, consumer jetstream.Consumer, concurrency int, handle func([]byte)) (func() error, error) {
	var mu sync.Mutex
	var failed error
	one := func(m jetstream.Msg) {
		handle(m.Data())
		if err := m.Ack(); err != nil {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
		}
	}
	callback, leave := one, func() {}
	if concurrency > 1 {
		callback, leave = fanOut(concurrency, b.ahead, one)
	}
	consuming, err := consumer.Consume(callback, jetstream.PullMaxMessages(b.ahead))
	if err != nil {
		leave()
		return nil, err
	}
	return func() error {
		consuming.Stop()
		<-consuming.Closed()
		leave()
		return errors.Join(failed, b.conn.FlushWithContext(ctx))
	}, nil
}

// fanOut hands what it gets to workers.
func fanOut(workers, ahead int, work func(jetstream.Msg)) (callback func(jetstream.Msg), leave func()) {
	messages, ended := make(chan jetstream.Msg, ahead), make(chan struct{})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				select {
				case m := <-messages:
					work(m)
				case <-ended:
					return
				}
			}
		})
	}
	callback = func(m jetstream.Msg) {
		select {
		case messages <- m:
		case <-ended:
		}
	}
	return callback, func() { close(ended); group.Wait() }
}

func (b *rawNATSBus) unsettled(ctx context.Context) (int64, error) { return b.server.unsettled(ctx) }

func (b *rawNATSBus) close(context.Context) error { b.conn.Close(); return nil }
