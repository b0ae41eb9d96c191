package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A rawNATSBus is the raw client of NATS. It uses package jetstream of nats.go, and
// messages of only a payload. Handlers take messages from a channel that Consume fills. The
// server does not confirm acknowledgements.
type rawNATSBus struct {
	server   *natsServer
	conn     *natsgo.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
	ahead    int // most messages in one pull
	headed   bool
	ids      atomic.Int64
}

var (
	_ checker = (*rawNATSBus)(nil)
	_ wide    = (*rawNATSBus)(nil)
)

const (
	natsSubject = "orders"
	natsDurable = "billing"
	natsAhead   = 1000 // most messages in one pull; the default of nats.go is 500
)

func openRawNATS(ctx context.Context, e env) (bus, error) { return openRawNATSBus(ctx, e, false) }

// openHeadedNATS opens the raw client so that it sends two headers in each message: the ID
// and the time, as the bus always does.
func openHeadedNATS(ctx context.Context, e env) (bus, error) { return openRawNATSBus(ctx, e, true) }

func openRawNATSBus(ctx context.Context, e env, headed bool) (bus, error) {
	conn, err := natsgo.Connect(e.nats.url)
	if err != nil {
		return nil, err
	}
	b := &rawNATSBus{server: e.nats, conn: conn, ahead: e.ahead(natsAhead), headed: headed}
	if b.js, err = jetstream.New(conn); err == nil {
		b.consumer, err = makeDurable(ctx, b.js, natsSubject)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// makeStream makes a stream that is stored in files.
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
	_, err := b.js.PublishMsg(ctx, b.message(natsSubject, payload))
	return err
}

// message returns a message with this payload. If b.headed is true, its headers have the
// names and the lengths of an event's ID and time.
func (b *rawNATSBus) message(subject string, payload []byte) *natsgo.Msg {
	m := &natsgo.Msg{Subject: subject, Data: payload}
	if b.headed {
		id := strconv.AppendInt(append(make([]byte, 0, 36), "01a205cf-a017-7"...), 1e17+b.ids.Add(1), 10)
		m.Header = natsgo.Header{"ce-id": {string(append(id, "-00"...))}, "ce-time": {time.Now().UTC().Format(time.RFC3339Nano)}}
	}
	return m
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
		if acks[i], err = b.js.PublishMsgAsync(b.message(subject, p)); err != nil {
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
	if b.headed { // read the headers, like a program that needs them
		plain := one
		one = func(m jetstream.Msg) {
			if m.Headers().Get("ce-id") == "" || m.Headers().Get("ce-time") == "" {
				panic("a message without its headers")
			}
			plain(m)
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

// fanOut returns two functions. callback passes a message to the workers, which call work
// with it. leave ends the workers.
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
