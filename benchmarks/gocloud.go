package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/mempubsub"
)

// A gocloudBus measures the peer Go CDK, with its broker in memory.
type gocloudBus struct {
	topic        *pubsub.Topic
	subscription *pubsub.Subscription
}

func openGocloud(context.Context, env) (bus, error) {
	topic := mempubsub.NewTopic()
	return &gocloudBus{topic, mempubsub.NewSubscription(topic, time.Minute)}, nil
}

func (b *gocloudBus) publish(ctx context.Context, payload []byte) error {
	return b.topic.Send(ctx, &pubsub.Message{Body: payload})
}

// publishBatch calls Send from one goroutine for each message. Send returns only when its
// message is stored, but messages that wait share a call to the broker.
func (b *gocloudBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	var senders sync.WaitGroup
	errs := make([]error, len(payloads))
	for i, p := range payloads {
		senders.Go(func() { errs[i] = b.publish(ctx, p) })
	}
	senders.Wait()
	return errors.Join(errs...)
}

func (b *gocloudBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for {
				m, err := b.subscription.Receive(ctx)
				if err != nil {
					return
				}
				handle(m.Body)
				m.Ack()
			}
		})
	}
	return func() error { cancel(); workers.Wait(); return nil }, nil
}

// close sends the acknowledgements that still wait.
func (b *gocloudBus) close(ctx context.Context) error {
	return errors.Join(b.subscription.Shutdown(ctx), b.topic.Shutdown(ctx))
}
