package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

const (
	searchEvery   = time.Second      // time between two calls that list the backend's topics
	searchShare   = 4                // listing topics takes at most a fifth of the time, however slow it is
	searchTimeout = 10 * time.Second // of one call
)

// ErrNeedsAdmin means that a subscription has a pattern, but the backend cannot list topics.
var ErrNeedsAdmin = fmt.Errorf("%w: the backend cannot list topics, which a pattern needs", errors.ErrUnsupported)

// A discovery lists the topics of the backend, and finds new ones for all subscriptions that use a
// pattern. As long as there is such a subscription, it is a recurring job.
type discovery struct {
	engine *Engine

	turn   chan struct{} // holds a value while a caller lists topics or reads the last list
	began  time.Time     // when the last list was requested
	topics []string

	job *recurringJob // nil if no subscription uses a pattern; guarded by Engine.mu
}

func (d *discovery) init(e *Engine) { d.engine, d.turn = e, make(chan struct{}, 1) }

// list returns the topics of the backend, sorted. Callers that wait for each other share one list.
func (d *discovery) list(ctx context.Context) ([]string, error) {
	admin, ok := backend.As[backend.Admin](d.engine.backend)
	if !ok {
		return nil, ErrNeedsAdmin
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	asked := time.Now()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
	}
	if asked.Before(d.began) {
		return d.topics, nil
	}
	began := time.Now()
	var topics []string
	err := callDriver("Topics", func() (err error) { topics, err = admin.Topics(ctx); return err })
	if err != nil {
		return nil, err
	}
	d.began, d.topics = began, topics
	return topics, nil
}

// has reports whether the backend has the topic.
func (d *discovery) has(ctx context.Context, topic string) (bool, error) {
	topics, err := d.list(ctx)
	return slices.Contains(topics, topic), err
}

// begin starts the job unless it is already running. The caller holds Engine.mu.
func (d *discovery) begin() {
	if d.job != nil {
		return
	}
	d.job = newRecurringJob(searchEvery, func(r *recurringJob) {
		start := time.Now()
		topics, err := d.list(r.ctx)
		took := time.Since(start)
		if r.ctx.Err() != nil || errors.Is(err, backend.ErrClosed) { // a closed backend never opens again
			return
		}
		d.announce(topics, err)
		r.runIn(max(searchEvery, searchShare*took))
	})
}

// announce passes the existing topics, or the error of listing them, to the subscriptions that use
// a pattern. If several of them find the same topic, they wait for each other.
func (d *discovery) announce(topics []string, err error) {
	subs, _ := d.engine.subscriptions()
	news := map[string][]*consumer{}
	for _, s := range subs {
		if !s.searches() {
			continue
		}
		if err != nil {
			s.notFound(err)
			continue
		}
		s.status.clear(noTopics, nil)
		for _, c := range s.consumers.found(topics) {
			news[c.topic] = append(news[c.topic], c)
		}
	}
	for _, found := range news {
		g := newAttachBarrier(len(found))
		for _, c := range found {
			c.barrier = g
		}
		for _, c := range found {
			c.sub.consumers.startFound(c)
		}
	}
}

func (s *Subscription) notFound(err error) {
	err = fmt.Errorf("list topics: %w", err)
	s.notifier.failed(observer.Receive, observer.About{Topic: s.Topic, Group: s.Group}, 0, err)
	s.status.trouble(noTopics, nil, err)
}

// An attachBarrier makes the groups that have found a topic wait until each of them has attached
// before any of them receives. Some backends remove an event as soon as all groups have settled it,
// so a group that attached later would miss it.
type attachBarrier struct {
	left atomic.Int32
	all  chan struct{} // closed when all have arrived
}

const maxBarrierWait = time.Second // how long a topic waits for a group that cannot attach

// newAttachBarrier returns a barrier for n consumers, or nil if there is only one.
func newAttachBarrier(n int) *attachBarrier {
	if n < 2 {
		return nil
	}
	g := &attachBarrier{all: make(chan struct{})}
	g.left.Store(int32(n))
	return g
}

// arrive records that a consumer has tried to attach, or never will.
func (g *attachBarrier) arrive() {
	if g != nil && g.left.Add(-1) == 0 {
		close(g.all)
	}
}

// wait waits for the others.
func (g *attachBarrier) wait(ctx context.Context) {
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxBarrierWait)
	defer cancel()
	select {
	case <-g.all:
	case <-ctx.Done():
	}
}

// end ends the job if no subscription uses a pattern.
func (d *discovery) end() {
	e := d.engine
	e.mu.Lock()
	job := d.job
	for s := range e.subs {
		if s.searches() {
			job = nil
		}
	}
	if job != nil {
		d.job = nil
	}
	e.mu.Unlock()
	if job != nil {
		job.end()
	}
}
