package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	trialTimeout = 20 * time.Second

	preloaders    = 8  // goroutines that publish the events of a con, backlog, memory or topics cell
	publishers    = 32 // goroutines that publish in an e2e or a lat cell
	liveConsumers = 16 // handlers that consume the events of a live target while a cell publishes

	backlogHandlers = 16
)

// A trial is one run of a cell on a target.
type trial struct {
	env     env
	meter   meter
	target  target
	cell    cell
	events  int
	payload int
}

// An outcome is the result of a trial.
type outcome struct {
	cost
	unsettled int64 // number of unsettled events after consuming; -1: the target cannot tell
}

func (t trial) run(parent context.Context) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(parent, t.timeout())
	defer cancel()
	goroutines := runtime.NumGoroutine()
	b, err := t.target.open(ctx, t.env)
	if err != nil {
		return o, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), t.timeout())
		defer cancel()
		err = errors.Join(err, b.close(ctx))
		if b := t.env.broker(t.target); b != nil {
			err = errors.Join(err, b.empty(ctx))
		}
	}()
	l := load{b, newPayload(t.payload)}
	switch t.cell.op {
	case opPublish:
		return t.publish(ctx, l, l.single)
	case opBatch:
		return t.publish(ctx, l, l.batches)
	case opLatency:
		return t.latency(ctx, b)
	case opTopics:
		return t.topics(ctx, b, goroutines)
	case opBoth:
		return t.consume(ctx, b, t.attach(b), func(c *counter) error {
			return share(publishers, t.events, func(i int) error {
				if err := c.keepUp(ctx, i); err != nil {
					return err
				}
				return b.publish(ctx, l.payload)
			})
		})
	}
	feed := func() error { return l.batches(ctx, preloaders, t.events) }
	if t.target.live {
		return t.consume(ctx, b, t.attach(b), func(*counter) error { return feed() })
	}
	if err := feed(); err != nil {
		return o, err
	}
	if t.cell.op == opMemory {
		return t.memory(ctx, b)
	}
	return t.consume(ctx, b, t.attach(b), func(*counter) error { return nil })
}

// timeout returns the time limit of the trial. It is longer for cells that make many topics
// or publish many events before the measured part.
func (t trial) timeout() time.Duration {
	switch t.cell.op {
	case opTopics, opBacklog, opMemory:
		return 10 * trialTimeout
	}
	return trialTimeout
}

// handlers returns how many handlers may run at the same time.
func (t trial) handlers() int {
	switch t.cell.op {
	case opBacklog:
		return backlogHandlers
	case opMemory:
		return 1
	}
	return t.cell.n
}

// An attach attaches a consumer that calls handle. stop ends the consumer.
type attach func(ctx context.Context, handle func([]byte)) (stop func() error, err error)

func (t trial) attach(b bus) attach {
	return func(ctx context.Context, handle func([]byte)) (func() error, error) {
		return b.consume(ctx, t.handlers(), handle)
	}
}

// publish measures calls of the function publish. Before the measurement, each goroutine
// publishes two events to warm up. They are not counted.
func (t trial) publish(ctx context.Context, l load, publish func(context.Context, int, int) error) (outcome, error) {
	stop := func() error { return nil }
	if t.target.live {
		var err error
		if stop, err = l.bus.consume(ctx, liveConsumers, func([]byte) {}); err != nil {
			return outcome{}, err
		}
	}
	if err := l.single(ctx, t.cell.n, 2*t.cell.n); err != nil {
		return outcome{}, err
	}
	runtime.GC()
	start := t.meter.begin()
	err := publish(ctx, t.cell.n, t.events)
	cost := start.until(t.meter.end(), t.events)
	return outcome{cost, -1}, errors.Join(err, stop())
}

// consume measures how fast the handlers handle events. feed publishes while they run. To leave
// out attaching and stopping, the measurement starts when a fifth of the events is handled, but
// after 5000 at the latest, and ends with the last event.
func (t trial) consume(ctx context.Context, b bus, attach attach, feed func(*counter) error) (o outcome, err error) {
	runtime.GC()
	c := newCounter(t.meter, t.events, t.payload)
	stop, err := attach(ctx, c.handle)
	if err != nil {
		return o, err
	}
	err = feed(c)
	select {
	case <-c.done:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("%d of %d events handled: %w", c.seen.Load(), t.events, ctx.Err()))
	}
	if err = errors.Join(err, stop()); err != nil {
		return o, err
	}
	o = outcome{c.start.until(c.end, t.events-int(c.warm)), -1}
	if check, ok := b.(checker); ok {
		o.unsettled, err = unsettled(ctx, check)
	}
	return o, errors.Join(err, c.verify())
}

// unsettled returns the number of unsettled events. It waits up to a second until there are
// none, because some peers report an acknowledgement as done before the server has it.
func unsettled(ctx context.Context, c checker) (left int64, err error) {
	for range 100 {
		if left, err = c.unsettled(ctx); left == 0 || err != nil {
			return left, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return left, ctx.Err()
		}
	}
	return left, nil
}

// A counter is the handler of a trial. It counts all events. It measures from the warm-th
// event to the last one.
type counter struct {
	meter        meter
	events, warm int64
	size         int
	seen, bad    atomic.Int64
	start, end   reading
	started      chan struct{} // closed when the measurement has started
	done         chan struct{} // closed when all events are handled
}

func newCounter(m meter, events, size int) *counter {
	return &counter{
		meter: m, events: int64(events), warm: int64(min(events/5, 5000)), size: size,
		started: make(chan struct{}), done: make(chan struct{}),
	}
}

func (c *counter) handle(payload []byte) {
	if len(payload) != c.size {
		c.bad.Add(1)
	}
	n := c.seen.Add(1)
	if n == c.warm {
		c.start = c.meter.begin()
		close(c.started)
	} else if n > c.warm {
		<-c.started // waits for the measurement to start; otherwise much work could be done before it starts
	}
	if n == c.events {
		c.end = c.meter.end()
		close(c.done)
	}
}

// ahead is the largest number of events by which publishers may be ahead of handlers.
const ahead = 5000

// keepUp waits until event i may be published. Without this wait, fast publishers would
// finish much of their work before the measurement starts.
func (c *counter) keepUp(ctx context.Context, i int) error {
	for tries := 0; int64(i)-c.seen.Load() > ahead; tries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if tries < 100 {
			runtime.Gosched()
		} else {
			wait(ctx, 100*time.Microsecond)
		}
	}
	return nil
}

// verify returns an error if payloads had another size or events were handled twice. It is
// called when all events are handled.
func (c *counter) verify() error {
	switch {
	case c.bad.Load() > 0:
		return fmt.Errorf("%d payloads were not of %d bytes", c.bad.Load(), c.size)
	case c.seen.Load() > c.events:
		return fmt.Errorf("%d events were handled twice", c.seen.Load()-c.events)
	}
	return nil
}
