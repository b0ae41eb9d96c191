package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// inherit returns the failed keys of a partition's earlier owners, or nil if owners don't pass them
// on.
func (c *consumer) inherit(ctx context.Context) (keys *partition.FailedKeys, err error) {
	s := c.sub
	if c.claim == nil || !s.FailAll {
		return nil, nil
	}
	err = callDriver("Read", func() error {
		keys, err = partition.ReadFailed(ctx, s.engine.backend, s.Topic, s.Group, c.partition, s.Partitions)
		return err
	})
	return keys, err
}

// keyToPass returns the failed key of h that the partition's next owner must learn of, if any.
func (c *consumer) keyToPass(h *Hold, reason string) (key string, ok bool) {
	c.sub.ledger.lock()
	defer c.sub.ledger.unlock()
	if c.failed == nil || reason == ReasonKeyFailed {
		return "", false
	}
	return h.OrderKey()
}

// keyMessage returns the message that informs the next owner about key, or nil if there is nothing
// to store.
func (c *consumer) keyMessage(key string) *backend.Message {
	m, full := c.failed.Message(key)
	if full {
		c.full.Do(func() {
			c.sub.notifier.noticed(backend.Notice{Topic: c.topic, Group: c.sub.Group, Text: fmt.Sprintf(
				"more than %d keys have failed for good: later ones are known to the current owner of the partition only; ReleaseKey makes room", partition.MostFailed)})
		})
	}
	return m
}

// ReleaseKey ends the effect of FailAll on key: the handler gets later events with key again. It
// reports whether FailAll was in effect for key.
func (s *Subscription) ReleaseKey(key string) bool {
	all := s.consumers.all()
	removals := map[*consumer]func(context.Context) error{}
	s.ledger.lock()
	had := s.ledger.ReleaseKey(key)
	for _, c := range all {
		if c.failed == nil || !had {
			continue
		}
		if remove := c.failed.Release(key); remove != nil { // now, because the key may fail again
			removals[c] = remove
		}
	}
	s.ledger.unlock()
	for c, remove := range removals {
		c.release(remove)
	}
	return had
}

// releaseTime limits how long ReleaseKey waits for the broker.
const releaseTime = 10 * time.Second

// release calls remove, so that the partition's next owner handles events with the key, too.
func (c *consumer) release(remove func(context.Context) error) {
	s := c.sub
	ctx, cancel := context.WithTimeout(s.live, releaseTime)
	defer cancel()
	for again := wait.Broker(); ; {
		err := callDriver("Remove", func() error { return remove(ctx) })
		if err == nil {
			return
		}
		if isTransient(err) && wait.Sleep(ctx, again.Next()) {
			continue
		}
		s.notifier.failed(observer.DeadLettering, c.about(), 1, fmt.Errorf("the next owner of partition %d will still treat the released key as failed: %w", c.partition, err))
		return
	}
}

// FailedKeys returns the keys of events that have failed permanently (FailAll), sorted.
func (s *Subscription) FailedKeys() []string {
	s.ledger.lock()
	defer s.ledger.unlock()
	return s.ledger.FailedKeys()
}
