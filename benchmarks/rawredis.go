package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
)

// A rawRedisBus is the ceiling on Redis: go-redis as one who knows what round
// trips cost would use it, with nothing around the payload.
//
// It reads ahead of the handlers; workers share what one read brought, and it is
// acknowledged by one XACK when the last handler has returned.
type rawRedisBus struct{ client *redis.Client }

var _ checker = (*rawRedisBus)(nil)

const (
	rawCount = 256 // messages of one read
	rawField = "p"
	rawBlock = 100 * time.Millisecond
)

func openRawRedis(ctx context.Context, e env) (bus, error) {
	b := &rawRedisBus{newRedisClient(e.redis.addr)}
	return b, makeGroup(ctx, b.client)
}

func (b *rawRedisBus) publish(ctx context.Context, payload []byte) error {
	return b.client.XAdd(ctx, &redis.XAddArgs{Stream: redisStream, Values: []any{rawField, payload}}).Err()
}

func (b *rawRedisBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	pipe := b.client.Pipeline()
	for _, p := range payloads {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: redisStream, Values: []any{rawField, p}})
	}
	_, err := pipe.Exec(ctx)
	return err
}

// A rawRead is what one XREADGROUP brought. Each worker takes the next of it by
// an atomic add.
type rawRead struct {
	ids      []string
	payloads []string
	next     atomic.Int64
	left     atomic.Int64
}

func (b *rawRedisBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	reading, cancel := context.WithCancel(ctx)
	reads, handled := make(chan *rawRead, 2*concurrency), make(chan *rawRead, 16)
	var readFailed, ackFailed error
	var reader, workers, acker sync.WaitGroup
	reader.Go(func() { readFailed = b.read(reading, concurrency, reads) })
	for range concurrency {
		workers.Go(func() {
			for r := range reads {
				r.work(handle, handled)
			}
		})
	}
	acker.Go(func() {
		for r := range handled {
			ackFailed = errors.Join(ackFailed, b.client.XAck(ctx, redisStream, redisGroup, r.ids...).Err())
		}
	})
	return func() error {
		cancel()
		reader.Wait()
		close(reads)
		workers.Wait()
		close(handled)
		acker.Wait()
		return errors.Join(readFailed, ackFailed)
	}, nil
}

func (b *rawRedisBus) read(ctx context.Context, concurrency int, reads chan<- *rawRead) error {
	args := &redis.XReadGroupArgs{
		Group: redisGroup, Consumer: "c1", Streams: []string{redisStream, ">"}, Count: rawCount, Block: rawBlock,
	}
	for ctx.Err() == nil {
		streams, err := b.client.XReadGroup(context.WithoutCancel(ctx), args).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		for _, s := range streams {
			r := &rawRead{ids: make([]string, len(s.Messages)), payloads: make([]string, len(s.Messages))}
			for i, m := range s.Messages {
				r.ids[i], r.payloads[i] = m.ID, m.Values[rawField].(string)
			}
			r.left.Store(int64(len(r.ids)))
			for range min(concurrency, len(r.ids)) {
				reads <- r
			}
		}
	}
	return nil
}

func (r *rawRead) work(handle func([]byte), handled chan<- *rawRead) {
	n, did := int64(len(r.payloads)), int64(0)
	for i := r.next.Add(1) - 1; i < n; i = r.next.Add(1) - 1 {
		handle(unsafe.Slice(unsafe.StringData(r.payloads[i]), len(r.payloads[i])))
		did++
	}
	if did > 0 && r.left.Add(-did) == 0 {
		handled <- r
	}
}

func (b *rawRedisBus) unsettled(ctx context.Context) (int64, error) {
	return unsettledOf(ctx, b.client)
}

func (b *rawRedisBus) close(context.Context) error { return b.client.Close() }
