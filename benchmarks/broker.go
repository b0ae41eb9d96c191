package main

import (
	"context"
	"errors"
	"net"
	"time"
)

// A broker is a server process. The targets that need it use it one after another. It ends
// with the suite.
type broker interface {
	pid() int
	connections(ctx context.Context) (int, error) // number of connections, without the connections of the suite itself
	empty(ctx context.Context) error              // removes the data of a trial
	stop() error
}

// An env holds the brokers that the targets of the plan need.
type env struct {
	redis *redisServer
	nats  *natsServer

	// payload is the size of the trial's events in bytes. Raw clients read fewer events in
	// one call if the events are large, as an expert would configure them. The bus adapts
	// itself.
	payload int
}

// ahead returns how many events of the trial's size a raw client reads ahead. It returns at
// most limit.
func (e env) ahead(limit int) int { return min(max(aheadBytes/e.payload, 8), limit) }

const aheadBytes = 8 << 20

// startBrokers starts the brokers that the targets need.
func startBrokers(ctx context.Context, ts []target) (e env, err error) {
	for _, t := range ts {
		switch {
		case t.base == rawRedis && e.redis == nil:
			e.redis, err = startRedis(ctx)
		case t.base == rawNATS && e.nats == nil:
			e.nats, err = startNATS(ctx)
		}
		if err != nil {
			return e, errors.Join(err, e.stop())
		}
	}
	return e, nil
}

// broker returns the broker that a target uses, or nil if the target runs in memory.
func (e env) broker(t target) broker {
	switch {
	case t.base == rawRedis && e.redis != nil:
		return e.redis
	case t.base == rawNATS && e.nats != nil:
		return e.nats
	}
	return nil
}

// meter returns a meter of this process and of the target's broker.
func (e env) meter(t target, p *profile) meter {
	if b := e.broker(t); b != nil {
		return meter{b.pid(), p}
	}
	return meter{0, p}
}

func (e env) stop() (err error) {
	if e.redis != nil {
		err = e.redis.stop()
	}
	if e.nats != nil {
		err = errors.Join(err, e.nats.stop())
	}
	return err
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// until repeats f until it returns no error, but for about 2 seconds at most. It returns
// the last error.
func until(ctx context.Context, f func() error) (err error) {
	for range 100 {
		if err = f(); err == nil || ctx.Err() != nil {
			return err
		}
		wait(ctx, 20*time.Millisecond)
	}
	return err
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
