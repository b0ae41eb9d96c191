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

// A rawRedisBus is the raw client of Redis: go-redis with messages of only a payload. It is
// used as an expert would use it, to avoid round trips.
//
// It reads ahead of the handlers. Several workers share the messages of one read. When the
// last handler of a read has returned, one XACK acknowledges all its messages.
type rawRedisBus struct {
	client *redis.Client
	count  int // most messages in one read
	topics int // number of topics that attachAll has made
}

var (
	_ checker = (*rawRedisBus)(nil)
	_ wide    = (*rawRedisBus)(nil)
)

const (
	rawCount = 256 // most messages in one read
	rawField = "p"
	rawBlock = 100 * time.Millisecond
)

func openRawRedis(ctx context.Context, e env) (bus, error) {
	b := &rawRedisBus{client: newRedisClient(e.redis.addr), count: e.ahead(rawCount)}
	return b, makeGroup(ctx, b.client, redisStream)
}

func (b *rawRedisBus) publish(ctx context.Context, payload []byte) error {
	return b.client.XAdd(ctx, &redis.XAddArgs{Stream: redisStream, Values: []any{rawField, payload}}).Err()
}

func (b *rawRedisBus) publishBatch(ctx context.Context, payloads [][]byte) error {
	return b.publishAll(ctx, redisStream, payloads)
}

func (b *rawRedisBus) publishTo(ctx context.Context, topic int, payloads [][]byte) error {
	return b.publishAll(ctx, topicName(topic), payloads)
}

func (b *rawRedisBus) publishAll(ctx context.Context, stream string, payloads [][]byte) error {
	pipe := b.client.Pipeline()
	for _, p := range payloads {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{rawField, p}})
	}
	_, err := pipe.Exec(ctx)
	return err
}

// A rawRead holds the messages of one XREADGROUP. The workers divide them by an atomic
// counter.
type rawRead struct {
	ids      []string
	payloads []string
	next     atomic.Int64
	left     atomic.Int64
}

func (b *rawRedisBus) consume(ctx context.Context, concurrency int, handle func([]byte)) (func() error, error) {
	return b.attach(ctx, redisStream, concurrency, handle), nil
}

// attachAll reads each stream on a connection of its own, because separate programs would
// do so.
func (b *rawRedisBus) attachAll(ctx context.Context, n int, handle func([]byte)) (func() error, error) {
	b.topics = n
	return attachEach(n, func(topic int) (func() error, error) {
		err := makeGroup(ctx, b.client, topicName(topic))
		return b.attach(ctx, topicName(topic), 1, handle), err
	})
}

func (b *rawRedisBus) attach(ctx context.Context, stream string, concurrency int, handle func([]byte)) (stop func() error) {
	reading, cancel := context.WithCancel(ctx)
	reads, handled := make(chan *rawRead, 2*concurrency), make(chan *rawRead, 16)
	var readFailed, ackFailed error
	var reader, workers, acker sync.WaitGroup
	reader.Go(func() { readFailed = b.read(reading, stream, concurrency, reads) })
	for range concurrency {
		workers.Go(func() {
			for r := range reads {
				r.work(handle, handled)
			}
		})
	}
	acker.Go(func() {
		for r := range handled {
			ackFailed = errors.Join(ackFailed, b.client.XAck(ctx, stream, redisGroup, r.ids...).Err())
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
	}
}

func (b *rawRedisBus) read(ctx context.Context, stream string, concurrency int, reads chan<- *rawRead) error {
	args := &redis.XReadGroupArgs{
		Group: redisGroup, Consumer: "c1", Streams: []string{stream, ">"}, Count: int64(b.count), Block: rawBlock,
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
	n, err := unsettledOf(ctx, b.client, redisStream)
	for topic := range b.topics {
		left, err2 := unsettledOf(ctx, b.client, topicName(topic))
		n, err = n+left, errors.Join(err, err2)
	}
	return n, err
}

func (b *rawRedisBus) close(context.Context) error { return b.client.Close() }
