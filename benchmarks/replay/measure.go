package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

const group = "billing"

// rates are the results of a run, in events a second.
type rates struct {
	plain    float64 // of a topic without settings
	kept     float64 // of a topic with Keep, for the first time
	replayed float64 // of the same topic, for the second time
	reset    time.Duration
}

// measure does one run, in topics of its own, and then deletes them.
func measure(ctx context.Context, s *server, p plan, run int) (r rates, err error) {
	plain, kept := fmt.Sprint("plain", run), fmt.Sprint("kept", run)
	bus, err := open(ctx, s, kept)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bus.Shutdown(context.WithoutCancel(ctx))) }()
	admin, ok := backend.As[backend.Admin](bus.Backend())
	if !ok {
		return r, errors.New("the backend has no Admin")
	}

	s.begin(ctx)
	err = fill(ctx, bus, plain, 0, p.events, p.payload)
	s.end(ctx, publishes, &err)
	if err != nil {
		return r, err
	}
	r.plain, err = consume(ctx, bus, plain, 0, p)
	s.end(ctx, "consumes", &err)
	if err := errors.Join(err, admin.DeleteTopic(ctx, plain)); err != nil {
		return r, err
	}

	early := p.events / 10
	s.begin(ctx)
	if err := fill(ctx, bus, kept, 0, early, p.payload); err != nil {
		return r, err
	}
	at, err := between(ctx, bus, kept)
	if err == nil {
		err = fill(ctx, bus, kept, early, early+p.events, p.payload)
	}
	s.end(ctx, "publishes with Keep", &err)
	if err != nil {
		return r, err
	}
	both := p
	both.events += early
	r.kept, err = consume(ctx, bus, kept, 0, both)
	s.end(ctx, "consumes with Keep", &err)
	if err != nil {
		return r, err
	}
	began := time.Now()
	err = admin.ResetGroup(ctx, kept, group, backend.StartAt(at))
	r.reset = time.Since(began)
	s.end(ctx, resets, &err)
	if err != nil {
		return r, err
	}
	r.replayed, err = consume(ctx, bus, kept, early, p)
	s.end(ctx, replays, &err)
	return r, errors.Join(err, admin.DeleteTopic(ctx, kept))
}

// between returns a time, by the clock of the broker, that is after all events and before the next.
func between(ctx context.Context, bus *eventbus.Bus, topic string) (time.Time, error) {
	clock, ok := backend.As[backend.Clocker](bus.Backend())
	if !ok {
		return time.Time{}, errors.New("the backend has no Clocker")
	}
	pause(ctx) // some brokers count in milliseconds
	now, err := clock.Now(ctx, topic)
	pause(ctx)
	return now, err
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// fill publishes the events with the numbers from first to last-1. The group of the topic exists
// before.
func fill(ctx context.Context, bus *eventbus.Bus, topic string, first, last, payload int) error {
	if err := backend.DeclareGroup(ctx, bus.Backend(), topic, group, backend.StartEarliest); err != nil {
		return err
	}
	const batch, publishers = 500, 4
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	starts := make(chan int)
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for start := range starts {
				events := make([]*eventbus.Event, min(batch, last-start))
				for i := range events {
					body := make([]byte, payload)
					binary.BigEndian.PutUint64(body, uint64(start+i))
					events[i] = &eventbus.Event{Payload: body}
				}
				if err := bus.Publish(ctx, topic, events...); err != nil {
					cancel(err)
				}
			}
		})
	}
	for start := first; start < last && ctx.Err() == nil; start += batch {
		starts <- start
	}
	close(starts)
	wg.Wait()
	return context.Cause(ctx)
}

// consume returns how many events a second the group handles, until it has handled p.events events with
// the numbers from first on. It settles them. It fails if the group gets another event, or one twice.
func consume(ctx context.Context, bus *eventbus.Bus, topic string, first int, p plan) (rate float64, err error) {
	c := &counter{first: first, seen: make([]bool, p.events), left: p.events, done: make(chan struct{})}
	began := time.Now()
	sub, err := bus.Subscribe(ctx, topic, eventbus.SubscribeOptions{Group: group, Concurrency: p.handlers}, c.handle)
	if err != nil {
		return 0, err
	}
	select {
	case <-c.done:
	case <-sub.Done():
		return 0, errors.Join(errors.New("the subscription has ended"), sub.Err())
	case <-ctx.Done():
		return 0, fmt.Errorf("%w; %s", context.Cause(ctx), c)
	}
	took := time.Since(began)
	if err := errors.Join(sub.Drain(ctx), c.wrong()); err != nil {
		return 0, err
	}
	return float64(p.events) / took.Seconds(), nil
}

// A counter counts the events that are handled, by their number.
type counter struct {
	mu    sync.Mutex
	first int
	seen  []bool
	left  int
	other int // events that are not among those, or came again
	done  chan struct{}
}

func (c *counter) handle(_ context.Context, d *eventbus.Delivery) error {
	n := int(binary.BigEndian.Uint64(d.Payload)) - c.first
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || n >= len(c.seen) || c.seen[n] {
		c.other++
		return nil
	}
	c.seen[n] = true
	if c.left--; c.left == 0 {
		close(c.done)
	}
	return nil
}

func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d of %d events are missing", c.left, len(c.seen))
}

func (c *counter) wrong() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.other > 0 {
		return fmt.Errorf("the group got %d events that it should not get, or got twice", c.other)
	}
	return nil
}
