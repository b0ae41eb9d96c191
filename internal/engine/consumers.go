package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// consumers holds the consumers of a subscription, one for each topic.
type consumers struct {
	sub      *Subscription
	fetching sync.WaitGroup // the goroutines of all fetchers
	opening  chan struct{}  // holds a value for each attach under way, at most maxConcurrentAttach

	mu      sync.Mutex
	byTopic map[string]*consumer
	resumed chan struct{} // open while the subscription is paused, closed otherwise
}

// maxConcurrentAttach limits how many topics of a subscription attach at the same time.
const maxConcurrentAttach = 16

func (l *consumers) init(s *Subscription) {
	l.sub, l.byTopic = s, map[string]*consumer{}
	l.opening, l.resumed = make(chan struct{}, maxConcurrentAttach), make(chan struct{})
	close(l.resumed)
}

// openAll opens consumers for the topics that s starts with. A topic that was found through a
// pattern may fail; its fetcher then tries again. If any other topic fails, openAll returns the
// error.
func (l *consumers) openAll(ctx context.Context) error {
	s := l.sub
	if p := s.engine.partitions[s.Topic]; p != nil {
		if err := p.agree().do(ctx); err != nil {
			return err
		}
	}
	if s.owns() {
		return s.owner.open(ctx)
	}
	all := map[string]*consumer{}
	for _, name := range s.names() {
		all[name] = newConsumer(s, name, s.Start, false)
	}
	if s.searches() {
		topics, err := s.engine.discovery.list(ctx)
		if err != nil {
			return err
		}
		for _, name := range topics {
			if all[name] == nil && s.Matches(name) {
				all[name] = newConsumer(s, name, s.Start, true)
			}
		}
	}
	l.byTopic = all // nobody else uses it yet
	return firstOf(l.each(func(c *consumer) error {
		err := c.open(ctx)
		if err != nil && c.found && ctx.Err() == nil && !errors.Is(err, ErrNeedsExtender) {
			c.fetcher.reportAttachError(err)
			return nil
		}
		if err != nil && s.roundRobin != nil {
			err = fmt.Errorf("topic %s: %w", c.topic, err)
		}
		return err
	}))
}

// firstOf returns the first error that isn't nil.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls do for each consumer, at most maxConcurrentAttach at a time, and returns the results.
func (l *consumers) each(do func(c *consumer) error) []error {
	all := l.all()
	return concurrently(l.opening, len(all), func(i int) error { return do(all[i]) })
}

// concurrently calls do with each number below n, as many at a time as slots has capacity for, and
// returns the results. If there is only one call, it doesn't start a goroutine.
func concurrently(slots chan struct{}, n int, do func(i int) error) []error {
	if n == 1 {
		return []error{do(0)}
	}
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	calls.Wait()
	return errs
}

// close closes all attachments.
func (l *consumers) close() error {
	errs := l.each((*consumer).quit)
	return errors.Join(errs...)
}

// halt keeps fetchers from starting another Receive, because the subscription has failed.
func (l *consumers) halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold()
}

// hold ends the Receives under way, and prevents new ones until resumed is closed. The caller holds
// mu.
func (l *consumers) hold() {
	if !isClosed(l.resumed) {
		return
	}
	l.resumed = make(chan struct{})
	for _, c := range l.byTopic {
		if c.fetcher.pause != nil {
			c.fetcher.pause()
		}
	}
}

// start starts the fetchers.
func (l *consumers) start() {
	for _, c := range l.all() {
		l.fetching.Go(c.fetcher.fetch)
	}
}

// found adds a consumer for each of topics that matches and doesn't have one, unless a drain has
// begun. The caller starts them. found calls the engine while holding the lock of l. Only join
// takes these locks in the other order, for a subscription that nobody else uses yet.
func (l *consumers) found(topics []string) (news []*consumer) {
	s := l.sub
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range topics {
		if s.ctx.Err() != nil || l.byTopic[name] != nil || !s.Matches(name) {
			continue
		}
		c := newConsumer(s, name, backend.StartEarliest, true) // the topic appeared after Subscribe
		c.fetcher.lastRead = 1                                 // it has events, which should not wait for a round of idle topics
		l.byTopic[name] = c
		s.engine.joinTopic(name, s)
		news = append(news, c)
	}
	s.roundRobin.setTopics(len(l.byTopic))
	return news
}

// startFound starts the fetcher of a consumer that was found, unless a drain has begun.
func (l *consumers) startFound(c *consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sub.ctx.Err() == nil {
		l.fetching.Go(c.fetcher.fetch)
	} else {
		c.barrier.arrive()
	}
}

func (l *consumers) remove(c *consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byTopic[c.topic] == c {
		delete(l.byTopic, c.topic)
	}
	l.sub.roundRobin.setTopics(len(l.byTopic))
}

// all returns the consumers, sorted by topic.
func (l *consumers) all() []*consumer {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*consumer, 0, len(l.byTopic))
	for _, topic := range slices.Sorted(maps.Keys(l.byTopic)) {
		list = append(list, l.byTopic[topic])
	}
	return list
}

// Topics returns the topics to which s is attached now, sorted.
func (s *Subscription) Topics() (topics []string) {
	if s.Config.Partitions > 0 {
		return []string{s.Topic}
	}
	for _, c := range s.consumers.all() {
		if c.attachment.Load() != nil {
			topics = append(topics, c.topic)
		}
	}
	return topics
}

// Pause stops receiving events until Resume. Held events are still handled.
func (s *Subscription) Pause() {
	l := &s.consumers
	l.mu.Lock()
	defer l.mu.Unlock()
	if !isClosed(l.resumed) {
		return
	}
	l.hold()
	s.status.enter(observer.Paused, nil) // before unlock, so that a later Resume wins
}

// Resume ends a Pause.
func (s *Subscription) Resume() {
	l := &s.consumers
	l.mu.Lock()
	defer l.mu.Unlock()
	if isClosed(l.resumed) {
		return
	}
	close(l.resumed)
	s.status.enter(observer.Running, nil)
}
