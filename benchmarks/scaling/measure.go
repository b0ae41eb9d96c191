package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/benchmarks/internal/broker"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
	"github.com/seed41896749/eventbus/scale"
)

const (
	topic = "orders"
	group = "billing"
)

// A result is the course of one run. Times count from the subscription on.
type result struct {
	name    string
	lags    []lag
	steps   []step        // each change of the number of handlers, which begins at 1
	failed  int           // looks of the Autoscaler that failed
	missing int           // events that were not handled
	again   int           // handled events that had been handled before
	handled time.Duration // when the last event was handled
	ended   time.Duration
}

// A lag is the backlog at one time, in events.
type lag struct {
	at     time.Duration
	events int64
}

// A step is a number of handlers, and when it began.
type step struct {
	at       time.Duration
	handlers int
}

// measure starts a broker, and lets a subscription work off a backlog on it.
func measure(ctx context.Context, name string, p plan) (r result, err error) {
	server, err := broker.Start(ctx, name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	bus, err := eventbus.Open(ctx, server.URL, eventbus.Options{}, redisstream.Driver{}, nats.Driver{})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bus.Shutdown(context.WithoutCancel(ctx))) }()
	options := eventbus.SubscribeOptions{Group: group, Concurrency: 1, MaxConcurrency: p.most}
	if err := errors.Join(bus.Declare(ctx, topic, options), fill(ctx, bus, p.events)); err != nil {
		return r, err
	}
	c := &counter{run: p.run, began: time.Now(), seen: make([]bool, p.events), left: p.events}
	sub, err := bus.Subscribe(ctx, topic, options, c.handle)
	if err != nil {
		return r, err
	}
	r.name = name
	err = r.follow(ctx, sub, c, p)
	r.missing, r.again, r.handled = c.counts()
	return r, err
}

// fill publishes the events of the backlog.
func fill(ctx context.Context, bus *eventbus.Bus, n int) error {
	const batch = 500
	for first := 0; first < n; first += batch {
		events := make([]*eventbus.Event, min(batch, n-first))
		for i := range events {
			events[i] = &eventbus.Event{Payload: binary.BigEndian.AppendUint64(nil, uint64(first+i))}
		}
		if err := bus.Publish(ctx, topic, events...); err != nil {
			return err
		}
	}
	return nil
}

// follow runs an Autoscaler, and records its course, until all events are handled and one
// handler has been left for some looks.
func (r *result) follow(ctx context.Context, sub *eventbus.Subscription, c *counter, p plan) error {
	scaler := scale.Autoscaler{
		Poll: p.poll(),
		Strategy: func(scale.Group) scale.Strategy {
			return scale.Stabilized(scale.Backlog{}, p.hysteresis(), p.cooldown())
		},
		Decided: func(d scale.Decision) {
			if d.Err != nil {
				r.failed++
			}
			if d.Done {
				r.steps = append(r.steps, step{time.Since(c.began), d.Sample.Handlers + int(d.Change)})
			}
		},
	}
	running, stop := context.WithCancel(ctx)
	var scaling sync.WaitGroup
	scaling.Go(func() { scaler.Run(running, sub) })
	defer func() { stop(); scaling.Wait() }() // so that nobody writes r after follow
	tick := time.NewTicker(p.poll())
	defer tick.Stop()
	for quiet := 0; ; {
		if stats, err := sub.Stats(ctx); err == nil && stats.Lag >= 0 {
			r.lags = append(r.lags, lag{time.Since(c.began), stats.Lag})
		}
		r.ended = time.Since(c.began)
		missing, _, _ := c.counts()
		if now, least, _ := sub.Handlers(); missing == 0 && now == least {
			if quiet++; quiet > 4 {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-sub.Done():
			return errors.Join(errors.New("the subscription has ended"), sub.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w; %d events are not handled", context.Cause(ctx), missing)
		}
	}
}

// check returns an error unless the number of handlers grew to the bound and then shrank to 1, each
// time by one, and every event was handled.
func (r result) check(p plan) error {
	var got, want []int
	for _, s := range r.steps {
		got = append(got, s.handlers)
	}
	for n := 2; n < p.most; n++ {
		want = append(want, n)
	}
	want = append(want, p.most)
	for n := p.most - 1; n >= 1; n-- {
		want = append(want, n)
	}
	switch {
	case r.missing > 0:
		return fmt.Errorf("%d events were not handled", r.missing)
	case !slices.Equal(got, want):
		return fmt.Errorf("after 1 handler there were %v, and should be %v", got, want)
	}
	return nil
}

// top returns the greatest number of handlers, and when it began.
func (r result) top() (handlers int, at time.Duration) {
	handlers = 1
	for _, s := range r.steps {
		if s.handlers > handlers {
			handlers, at = s.handlers, s.at
		}
	}
	return handlers, at
}

// back returns when the last change of the number of handlers was.
func (r result) back() time.Duration {
	if len(r.steps) == 0 {
		return 0
	}
	return r.steps[len(r.steps)-1].at
}

func (r result) String() string {
	most, at := r.top()
	return fmt.Sprintf("%-6s %d handlers after %.1f s, all events handled after %.1f s, 1 handler after %.1f s; %d handled again, %d failed looks",
		r.name, most, at.Seconds(), r.handled.Seconds(), r.back().Seconds(), r.again, r.failed)
}

// A counter counts the events that are handled, by their number. Each run takes some time.
type counter struct {
	run   time.Duration
	began time.Time

	mu    sync.Mutex
	seen  []bool
	left  int
	again int
	last  time.Duration // when left became 0
}

func (c *counter) handle(ctx context.Context, d *eventbus.Delivery) error {
	select {
	case <-time.After(c.run):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	n := binary.BigEndian.Uint64(d.Payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[n] {
		c.again++
		return nil
	}
	c.seen[n] = true
	if c.left--; c.left == 0 {
		c.last = time.Since(c.began)
	}
	return nil
}

func (c *counter) counts() (missing, again int, last time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left, c.again, c.last
}
