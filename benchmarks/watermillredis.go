package main

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// A watermillRedisBus measures the peer Watermill on Redis Streams. A subscription waits for
// the acknowledgement of a message before it delivers the next one, so there is one
// subscription for each handler, as Watermill's users would have it.
type watermillRedisBus struct {
	env       env
	client    *redis.Client
	publisher *redisstream.Publisher
}

var _ checker = (*watermillRedisBus)(nil)

func openWatermillRedis(ctx context.Context, e env) (bus, error) {
	c := newRedisClient(e.redis.addr)
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: c}, watermill.NopLogger{})
	return &watermillRedisBus{e, c, p}, errors.Join(err, makeGroup(ctx, c, redisStream))
}

func (b *watermillRedisBus) publish(_ context.Context, payload []byte) error {
	return b.publisher.Publish(redisStream, message.NewMessage(watermill.NewUUID(), payload))
}

func (b *watermillRedisBus) publishBatch(_ context.Context, payloads [][]byte) error {
	return b.publisher.Publish(redisStream, watermillMessages(payloads)...)
}

func (b *watermillRedisBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: newRedisClient(b.env.redis.addr), ConsumerGroup: redisGroup, DisableIndefiniteInitialBlock: true, // without this option a subscriber never ends
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	var workers sync.WaitGroup
	for range concurrency {
		messages, err := subscriber.Subscribe(ctx, redisStream)
		if err != nil {
			return nil, errors.Join(err, subscriber.Close())
		}
		workers.Go(func() {
			for m := range messages {
				handle(m.Payload)
				m.Ack()
			}
		})
	}
	return func() error { // Close sends the acknowledgements and closes its client
		err := subscriber.Close()
		workers.Wait()
		return err
	}, nil
}

func (b *watermillRedisBus) unsettled(ctx context.Context) (int64, error) {
	return unsettledOf(ctx, b.client, redisStream)
}

func (b *watermillRedisBus) close(context.Context) error {
	return b.publisher.Close() // closes the publisher's client too
}
