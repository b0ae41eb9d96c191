package main

import (
	"context"
	"io"
	"log"
	"time"

	"github.com/hibiken/asynq"
)

// An asynqBus measures the peer asynq, a task queue that uses Redis lists and Lua scripts.
// asynq has no call that publishes several tasks.
type asynqBus struct {
	options asynq.RedisClientOpt
	client  *asynq.Client
}

func openAsynq(_ context.Context, e env) (bus, error) {
	o := asynq.RedisClientOpt{Addr: e.redis.addr, PoolSize: 320}
	return &asynqBus{o, asynq.NewClient(o)}, nil
}

func (b *asynqBus) publish(ctx context.Context, payload []byte) error {
	_, err := b.client.EnqueueContext(ctx, asynq.NewTask("order", payload), asynq.Queue(redisStream))
	return err
}

func (b *asynqBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	for _, p := range payloads {
		if err := b.publish(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (b *asynqBus) consume(_ context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	server := asynq.NewServer(b.options, asynq.Config{
		Concurrency: concurrency, Queues: map[string]int{redisStream: 1},
		LogLevel: asynq.FatalLevel, Logger: silent{log.New(io.Discard, "", 0)},
		ShutdownTimeout:   5 * time.Second,
		TaskCheckInterval: 100 * time.Millisecond, // pause of asynq when its queue is empty; its longer default would lengthen trials
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		handle(t.Payload())
		return nil
	}))
	return func() error { server.Shutdown(); return nil }, err
}

func (b *asynqBus) close(context.Context) error { return b.client.Close() }

// silent is a logger that discards all messages.
type silent struct{ *log.Logger }

func (l silent) Debug(...any) {}
func (l silent) Info(...any)  {}
func (l silent) Warn(...any)  {}
func (l silent) Error(...any) {}
func (l silent) Fatal(...any) {}
