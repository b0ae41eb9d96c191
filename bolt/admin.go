package bolt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/seed41896749/eventbus/backend"
)

// Maintain implements [backend.Maintainer]. It removes messages that every group has
// settled and that are older than Keep, and IDs whose window is over, two thousand of each at most.
// It also removes the record of each member that has ended and holds nothing. In all topics it deletes
// ephemeral groups without a living member.
func (b *Backend) Maintain(ctx context.Context, topic, name string) (next time.Duration, err error) {
	const most = 2000
	err = b.update(ctx, "maintain "+topic+"/"+name, func(t *txn) error {
		next = maintainInterval
		g, err := t.find(topic, name)
		if err != nil {
			return err
		}
		if g.ephemeral {
			next = b.store.touchAll(g.identity)
		}
		g.removeEndedMembers(b.store.isLive)
		now := time.Now()
		trimmed, err := g.trim(now, most)
		if forgotten := g.forgetIDs(now, most); trimmed == most || forgotten == most {
			next = maintainAgain
		}
		return err
	})
	return next, errors.Join(err, failed("delete ephemeral groups", b.store.deleteExpired()))
}

const (
	maintainAgain    = 100 * time.Millisecond // there is more to do
	maintainInterval = 5 * time.Second        // a full disk has room soon after events are settled
)

// find returns a group that exists.
func (t *txn) find(topic, group string) (*group, error) {
	found, err := t.topic(topic)
	if err != nil {
		return nil, err
	}
	return found.group(group)
}

// Read implements [backend.Reader]. It leaves out messages whose body is lost.
func (b *Backend) Read(ctx context.Context, name string, from backend.Start, limit int) (ms []backend.Message, err error) {
	err = b.view(ctx, "read "+name, func(t *txn) error {
		topic, err := t.topic(name)
		if err != nil {
			return err
		}
		first, err := topic.resolveStart(from)
		if err != nil && !errors.Is(err, errBeyond) {
			return err
		}
		c := topic.log.Cursor()
		for k, _ := c.Seek(pack(first)); k != nil && len(ms) < limit; k, _ = c.Next() {
			m, _, err := topic.message(numberAt(k, 0))
			if err != nil {
				return fmt.Errorf("%s: %w", m.Position, err)
			}
			ms = append(ms, m)
		}
		return nil
	})
	return ms, err
}

// Remove implements [backend.Remover]. A string that is not a position rolls back the whole
// call.
func (b *Backend) Remove(ctx context.Context, name string, positions []string) error {
	return b.update(ctx, "remove from "+name, func(t *txn) error {
		topic, err := t.topic(name)
		if err != nil {
			return err
		}
		for _, p := range positions {
			offset, err := parsePosition(p)
			if err != nil {
				return err
			}
			topic.removeAt(offset)
		}
		return nil
	})
}

// Stats implements [backend.Statser]. Every number is exact. Lag counts removed messages too,
// because the group gets them with ErrGone.
func (b *Backend) Stats(ctx context.Context, topic, name string) (s backend.Stats, err error) {
	err = b.view(ctx, "stats of "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err != nil {
			return err
		}
		s.Depth = int64(g.depth())
		s.Lag = int64(g.end() - g.cursor)
		s.Members = b.store.count(g.identity, 0)
		err = g.entries.ForEach(func(k, _ []byte) error {
			if s.Oldest.IsZero() { // a removed message has no time
				_, s.Oldest, _ = g.message(numberAt(k, 0))
			}
			if g.entry(numberAt(k, 0)).held > 0 {
				s.InFlight++
			} else {
				s.Delayed++
			}
			return nil
		})
		s.Unacked = s.InFlight + s.Delayed
		if k, _ := g.log.Cursor().Seek(pack(g.cursor)); k != nil && s.Oldest.IsZero() {
			_, s.Oldest, _ = g.message(numberAt(k, 0))
		}
		return err
	})
	return s, err
}

// Topics implements [backend.Admin].
func (b *Backend) Topics(ctx context.Context) (names []string, err error) {
	err = b.view(ctx, "topics", func(t *txn) error {
		names, err = bucketNames(t.topics)
		return err
	})
	return names, err
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, name string) (names []string, err error) {
	err = b.view(ctx, "groups of "+name, func(t *txn) error {
		topic, err := t.topic(name)
		if err == nil {
			names, err = bucketNames(topic.groups)
		}
		return err
	})
	return names, err
}

// bucketNames returns the names of the buckets in b. The file has them sorted.
func bucketNames(b *bbolt.Bucket) (names []string, err error) {
	err = b.ForEachBucket(func(name []byte) error {
		names = append(names, string(name))
		return nil
	})
	return names, err
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, name string) error {
	defer b.store.wake(name) // waiting members find that the topic is gone
	return b.update(ctx, "delete "+name, func(t *txn) error {
		topic, err := t.topic(name)
		if err == nil {
			topic.delete()
		}
		return err
	})
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, name string) error {
	defer b.store.wake(topic)
	return b.update(ctx, "delete "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err == nil {
			g.deleteGroup(name)
		}
		return err
	})
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(ctx context.Context, topic, name string, start backend.Start) error {
	defer b.store.wake(topic)
	return b.update(ctx, "reset "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err != nil {
			return err
		}
		t.wroteOrFailed(g.groups.DeleteBucket([]byte(name)))
		return g.makeGroup(name, g.identity, g.groupAttributes, start) // members stay; deliveries from before hold nothing
	})
}

// Settle implements [backend.Settler].
func (b *Backend) Settle(ctx context.Context, topic, name, position string) (had bool, err error) {
	err = b.update(ctx, "settle in "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err != nil {
			return err
		}
		offset, err := parsePosition(position)
		switch {
		case err != nil:
			return err
		case offset >= g.cursor:
			return fmt.Errorf("%w: the group has not received the message at %s yet", backend.ErrRefused, position)
		}
		e := g.entry(offset)
		if had = e.delivery > 0; had {
			g.settle(e)
		}
		return nil
	})
	return had && err == nil, err
}

// Settled implements [backend.Settler].
func (b *Backend) Settled(ctx context.Context, topic, name string, positions []string) (settled []bool, err error) {
	settled = make([]bool, len(positions))
	err = b.view(ctx, "ask what is settled in "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err != nil {
			return err
		}
		for i, p := range positions {
			offset, err := parsePosition(p)
			if err != nil {
				return err
			}
			settled[i] = offset < g.cursor && g.entry(offset).delivery == 0
		}
		return nil
	})
	return settled, err
}

// Pause implements [backend.Pauser].
func (b *Backend) Pause(ctx context.Context, topic, name string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return failed("pause "+topic+"/"+name, err)
	}
	p.Since = time.Now()
	if !p.Until.IsZero() && !p.Until.After(p.Since) {
		p = backend.Pause{}
	}
	defer b.store.wake(topic) // members that wait learn of it
	return b.update(ctx, "pause "+topic+"/"+name, func(t *txn) error { return t.setPause(topic, name, p) })
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(ctx context.Context, topic, name string) error {
	defer b.store.wake(topic)
	return b.update(ctx, "resume "+topic+"/"+name, func(t *txn) error { return t.setPause(topic, name, backend.Pause{}) })
}

// setPause replaces the pause of a group.
func (t *txn) setPause(topic, name string, p backend.Pause) error {
	g, err := t.find(topic, name)
	if err == nil && g.pause != p {
		g.pause = p
		g.save()
	}
	return err
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(ctx context.Context, topic, name string) (p backend.Pause, err error) {
	err = b.view(ctx, "ask for the pause of "+topic+"/"+name, func(t *txn) error {
		g, err := t.find(topic, name)
		if err == nil {
			p = g.paused(time.Now())
		}
		return err
	})
	return p, err
}
