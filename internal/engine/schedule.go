package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

const (
	schedulePoll = 5 * time.Second  // how often to check for scheduled events while there are none
	firstLook    = time.Second      // after Subscribe
	lookTimeout  = 10 * time.Second // of one check
	deniedLooks  = 10 * time.Minute // time between two checks that the broker doesn't allow; only the first is reported
)

// A mover publishes the scheduled events of a topic when they are due. While there are none, it is
// a recurring job without a goroutine.
type mover struct {
	*recurringJob
	woken   chan struct{}
	working atomic.Bool
	users   int // topics of subscriptions, and RunMover calls; guarded by Engine.mu
}

// startMover counts a user of a topic's mover and starts the mover, unless the backend can't keep
// scheduled events. All subscriptions to the topic share it. The caller holds mu.
func (e *Engine) startMover(topic string) {
	if m := e.movers[topic]; m != nil {
		m.users++
		return
	}
	if strings.HasSuffix(topic, later.Suffix) || partition.Reserved(topic) || later.Check(e.backend, topic) != nil {
		return
	}
	m := &mover{woken: make(chan struct{}, 1), users: 1}
	work := &later.Mover{
		Backend: e.backend, Topic: topic, Publish: e.Publish, Woken: m.woken,
		Failed: func(events int, err error) {
			e.notifier.failed(observer.Schedule, observer.About{Topic: topic}, events, err)
		},
	}
	again := wait.Broker()
	again.Max = schedulePoll // after an outage, overdue events should be published soon
	denied := false
	m.recurringJob = newRecurringJob(firstLook, func(r *recurringJob) {
		err := callDriver("schedule", func() error { return m.run(r.ctx, work) })
		next := schedulePoll
		switch {
		case r.ctx.Err() != nil:
			return
		case errors.Is(err, backend.ErrClosed):
			return
		case errors.Is(err, backend.ErrDenied) && denied:
			next = deniedLooks
		case err != nil:
			denied = errors.Is(err, backend.ErrDenied)
			work.Failed(0, err)
			next = again.Next()
		default:
			again.Reset()
		}
		r.runIn(next)
	})
	e.movers[topic] = m
}

// RunMover runs a topic's mover until ctx or the engine ends. It shares the mover with the
// subscriptions to the topic.
func (e *Engine) RunMover(ctx context.Context, topic string) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return backend.ErrClosed
	}
	e.startMover(topic)
	m := e.movers[topic]
	if m == nil {
		e.mu.Unlock()
		return fmt.Errorf("%w: %s is the log of another topic", backend.ErrRefused, topic)
	}
	e.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-e.down:
	}
	e.mu.Lock()
	last := e.releaseMover(topic)
	e.mu.Unlock()
	if last != nil {
		last.end()
	}
	return nil
}

// releaseMover undoes startMover. It returns the mover if the caller must end it, or nil if it
// still has users. The caller holds mu.
func (e *Engine) releaseMover(topic string) *mover {
	m := e.movers[topic]
	if m == nil {
		return nil
	}
	if m.users--; m.users > 0 {
		return nil
	}
	delete(e.movers, topic)
	return m
}

// endMovers ends the movers that RunMover has left behind, and waits for work under way.
func (e *Engine) endMovers() error {
	e.mu.Lock()
	movers := e.movers
	e.movers = map[string]*mover{}
	e.mu.Unlock()
	for _, m := range movers {
		m.end()
	}
	return nil
}

// run moves events until nothing is scheduled.
func (m *mover) run(ctx context.Context, work *later.Mover) error {
	m.working.Store(true)
	defer m.working.Store(false)
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	some, err := work.Scheduled(bounded)
	cancel()
	if err != nil || !some {
		return err
	}
	return work.Work(ctx)
}

// WakeMover makes a topic's mover look for new scheduled events now.
func (e *Engine) WakeMover(topic string) {
	e.mu.Lock()
	m := e.movers[topic]
	e.mu.Unlock()
	if m == nil {
		return
	}
	select {
	case m.woken <- struct{}{}:
	default:
	}
	if !m.working.Load() {
		m.runIn(0)
	}
}
