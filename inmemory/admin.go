package inmemory

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// Stats implements [backend.Statser]. Every number is exact. A delivery whose
// lease has passed counts as in flight, and one whose delay has passed as
// delayed, until it is taken: Lag, InFlight and Delayed add up to what the group
// has to settle.
func (b *Backend) Stats(_ context.Context, topic, name string) (s backend.Stats, err error) {
	err = b.visit("stats of", topic, name, func(g *group) error {
		log := &g.topic.log
		log.mu.Lock() // so that all is of the same moment
		defer log.mu.Unlock()
		s = backend.Stats{
			Depth:    log.len(),
			Lag:      g.lag(),
			InFlight: int64(g.inFlight),
			Delayed:  int64(g.queue.len() - g.inFlight),
			Members:  int64(len(g.members)),
		}
		if floor := g.floor(); floor < log.next.Load() {
			s.Oldest = b.clock.time(log.stored(floor))
		}
		return nil
	})
	return s, err
}

// Topics implements [backend.Admin].
func (b *Backend) Topics(context.Context) ([]string, error) {
	if err := b.directory.open(nil); err != nil {
		return nil, fmt.Errorf("inmemory: topics: %w", err)
	}
	return b.directory.names(), nil
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(_ context.Context, topic string) ([]string, error) {
	t, err := b.directory.acquire(topic)
	if err != nil {
		return nil, fmt.Errorf("inmemory: groups of %s: %w", topic, err)
	}
	defer t.mu.Unlock()
	names := make([]string, len(t.groups))
	for i, g := range t.groups {
		names[i] = g.name
	}
	return names, nil
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(_ context.Context, topic string) error {
	if err := b.directory.remove(topic); err != nil {
		return fmt.Errorf("inmemory: delete %s: %w", topic, err)
	}
	return nil
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(_ context.Context, topic, name string) error {
	return b.visit("delete", topic, name, func(g *group) error {
		g.topic.removeGroup(g)
		return nil
	})
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(_ context.Context, topic, name string, start backend.Start) error {
	return b.visit("reset", topic, name, func(g *group) error {
		return g.reset(start)
	})
}

const forgetAtOnce = 1024 // marks: what one Maintain may hold the topic up for

// Maintain forgets the IDs whose Once window has passed, and lets go of memory that
// a topic has ready, or still has of messages that were trimmed. Nothing else needs
// work on the side: trimming is done by the Ack that allows it.
func (b *Backend) Maintain(_ context.Context, topic, name string) (next time.Duration, err error) {
	err = b.visit("maintain", topic, name, func(g *group) error {
		log := &g.topic.log
		log.mu.Lock()
		defer log.mu.Unlock()
		log.rest()
		next = log.marks.forget(forgetAtOnce, b.clock.now())
		return nil
	})
	return next, err
}

// visit calls f with a group that exists, its topic locked.
func (b *Backend) visit(op, topic, name string, f func(*group) error) error {
	t, err := b.directory.acquire(topic)
	if err == nil {
		defer t.mu.Unlock()
		if g := t.group(name); g != nil {
			err = f(g)
		} else {
			err = backend.ErrGone
		}
	}
	if err != nil {
		return fmt.Errorf("inmemory: %s %s/%s: %w", op, topic, name, err)
	}
	return nil
}
