package main

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// A watermillBus measures the peer Watermill, with its broker in memory. Each subscription gets
// every message, so a trial uses one subscription even if it needs several handlers.
type watermillBus struct{ pubsub *gochannel.GoChannel }

const watermillTopic = "orders"

func openWatermill(context.Context, env) (bus, error) {
	config := gochannel.Config{OutputChannelBuffer: 1024}
	return &watermillBus{gochannel.NewGoChannel(config, watermill.NopLogger{})}, nil
}

func (b *watermillBus) publish(_ context.Context, payload []byte) error {
	return b.pubsub.Publish(watermillTopic, message.NewMessage(watermill.NewUUID(), payload))
}

func (b *watermillBus) publishBatch(_ context.Context, payloads [][]byte) error {
	return b.pubsub.Publish(watermillTopic, watermillMessages(payloads)...)
}

func (b *watermillBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	messages, err := b.pubsub.Subscribe(ctx, watermillTopic)
	if err != nil {
		cancel()
		return nil, err
	}
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for m := range messages {
				handle(m.Payload)
				m.Ack()
			}
		})
	}
	return func() error { cancel(); workers.Wait(); return nil }, nil
}

func (b *watermillBus) close(context.Context) error { return b.pubsub.Close() }
