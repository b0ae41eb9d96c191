package main

import (
	"context"
	"sync"
)

// A channelBus is the raw client in memory: a Go channel that several goroutines read.
type channelBus struct{ events chan []byte }

var _ checker = (*channelBus)(nil)

func openChannel(context.Context, env) (bus, error) {
	return &channelBus{make(chan []byte, 2*mostEvents)}, nil
}

func (b *channelBus) publish(_ context.Context, payload []byte) error {
	b.events <- payload
	return nil
}

func (b *channelBus) publishBatch(_ context.Context, payloads [][]byte) error {
	for _, p := range payloads {
		b.events <- p
	}
	return nil
}

func (b *channelBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for {
				select {
				case p := <-b.events:
					handle(p)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() error { cancel(); workers.Wait(); return nil }, nil
}

func (b *channelBus) unsettled(context.Context) (int64, error) { return int64(len(b.events)), nil }

func (b *channelBus) close(context.Context) error { return nil }
