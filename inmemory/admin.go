package inmemory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var (
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Clocker    = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
	_ backend.Declarer   = (*Backend)(nil)
	_ backend.Pauser     = (*Backend)(nil)
	_ backend.Settler    = (*Backend)(nil)
)

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.Topics(ctx)
	return err
}

// Now implements [backend.Clocker].
func (b *Backend) Now(ctx context.Context, _ string) (time.Time, error) {
	return time.Now(), b.Ping(ctx)
}

// Read implements [backend.Reader].
func (b *Backend) Read(_ context.Context, topic string, from backend.Start, limit int) (ms []backend.Message, err error) {
	defer func() { err = failed(err, "read", topic) }()
	t, err := b.acquire(topic, false)
	if err != nil {
		return nil, err
	}
	defer t.unlock()
	first, err := t.log.resolveStart(from)
	if errors.Is(err, errBeyond) {
		err = nil
	}
	for ; err == nil && len(ms) < limit && first < t.log.next(); first++ {
		if r := t.log.at(first); r.err == nil {
			ms = append(ms, r.message)
		}
	}
	copyPayloads(len(ms), func(i int) *backend.Message { return &ms[i] })
	return ms, err
}

// Remove implements [backend.Remover]. A group that has not settled a removed message gets
// a delivery without a payload, whose Err matches [backend.ErrGone].
func (b *Backend) Remove(_ context.Context, topic string, positions []string) (err error) {
	defer func() { err = failed(err, "remove from", topic) }()
	offsets := make([]uint64, len(positions))
	for i, p := range positions {
		if offsets[i], err = parsePosition(p); err != nil {
			return err
		}
	}
	t, err := b.acquire(topic, false)
	if err != nil {
		return err
	}
	defer t.unlock()
	for _, offset := range offsets {
		messages, bytes := t.log.remove(offset)
		t.totals.add(-messages, -bytes, 0)
	}
	return nil
}

// Stats implements [backend.Statser]. Every number is exact.
func (b *Backend) Stats(_ context.Context, topic, name string) (s backend.Stats, err error) {
	err = b.withGroup("stats of", topic, name, func(g *group) error {
		log := &g.topic.log
		s = backend.Stats{Depth: int64(log.kept), Lag: int64(g.lag()), Members: int64(len(g.members))}
		for _, e := range g.entries {
			switch {
			case e == nil: // settled
			case e.receipt != nil:
				s.InFlight++
			default:
				s.Delayed++
			}
		}
		s.Unacked = s.InFlight + s.Delayed
		if g.floor < log.next() {
			s.Oldest = log.at(g.floor).stored
		}
		return nil
	})
	return s, err
}

// Maintain implements [backend.Maintainer]. It frees the memory of IDs that Message.Once
// need not remember anymore, and of messages that are older than Keep. Without Keep, Ack
// frees messages. In all topics it deletes ephemeral groups whose members are not heard of.
func (b *Backend) Maintain(_ context.Context, topic, name string) (next time.Duration, err error) {
	now := time.Now()
	err = b.withGroup("maintain", topic, name, func(g *group) error {
		next = g.topic.once.rotate(now)
		if g.topic.settings.Keep > 0 {
			next = min(next, maintainInterval)
		}
		if g.ephemeral {
			next = min(next, g.touch(now))
		}
		return nil
	})
	for _, g := range b.totals.listEphemeral() {
		next = min(next, maintainInterval)
		g.topic.mu.Lock()
		g.expireEphemeral(now)
		g.topic.unlock()
	}
	return next, err
}

// maintainInterval is the longest time to the next Maintain.
const maintainInterval = 5 * time.Second

// Topics implements [backend.Admin].
func (b *Backend) Topics(context.Context) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics == nil {
		return nil, failed(backend.ErrClosed, "list", "topics")
	}
	return slices.Sorted(maps.Keys(b.topics)), nil
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(_ context.Context, topic string) ([]string, error) {
	t, err := b.acquire(topic, false)
	if err != nil {
		return nil, failed(err, "groups of", topic)
	}
	defer t.unlock()
	return slices.Sorted(maps.Keys(t.groups)), nil
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(_ context.Context, topic string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[topic]
	switch {
	case b.topics == nil:
		return failed(backend.ErrClosed, "delete", topic)
	case t == nil:
		return failed(backend.ErrGone, "delete", topic)
	}
	delete(b.topics, topic)
	b.unused = max(b.unused, t.end(backend.ErrGone))
	return nil
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(_ context.Context, topic, name string) error {
	return b.withGroup("delete", topic, name, func(g *group) error {
		delete(g.topic.groups, name)
		g.end(backend.ErrGone)
		return nil
	})
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(_ context.Context, topic, name string, start backend.Start) error {
	return b.withGroup("reset", topic, name, func(g *group) error { return g.reset(start) })
}

// Declare implements [backend.Declarer].
func (b *Backend) Declare(_ context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	if err := b.Limits().Settings.Check(d.Settings); err != nil {
		return backend.TopicSettings{}, failed(err, "declare", topic)
	}
	t, err := b.acquire(topic, true)
	if err != nil {
		return backend.TopicSettings{}, failed(err, "declare", topic)
	}
	defer t.unlock()
	if d.Replace || t.settings == (backend.TopicSettings{}) {
		t.settings = d.Settings
	}
	return t.settings, nil
}

// Pause implements [backend.Pauser].
func (b *Backend) Pause(_ context.Context, topic, name string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return failed(err, "pause", topic+"/"+name)
	}
	return b.withGroup("pause", topic, name, func(g *group) error {
		p.Since = time.Now()
		if !p.Until.IsZero() && !p.Until.After(p.Since) {
			p = backend.Pause{}
		}
		g.setPause(p)
		return nil
	})
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(_ context.Context, topic, name string) error {
	return b.withGroup("resume", topic, name, func(g *group) error { g.setPause(backend.Pause{}); return nil })
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(_ context.Context, topic, name string) (p backend.Pause, err error) {
	err = b.withGroup("ask for the pause of", topic, name, func(g *group) error {
		p = g.paused()
		return nil
	})
	return p, err
}

// Settle implements [backend.Settler].
func (b *Backend) Settle(_ context.Context, topic, name, position string) (had bool, err error) {
	err = b.withGroup("settle in", topic, name, func(g *group) error {
		offset, err := parsePosition(position)
		switch {
		case err != nil:
			return err
		case offset >= g.cursor():
			return fmt.Errorf("%w: the group has not received the message at %s yet", backend.ErrRefused, position)
		case offset < g.floor || g.entries[offset-g.floor] == nil: // it is settled
			return nil
		}
		g.settle(g.entries[offset-g.floor])
		had = true
		return nil
	})
	return had, err
}

// Settled implements [backend.Settler].
func (b *Backend) Settled(_ context.Context, topic, name string, positions []string) (settled []bool, err error) {
	settled = make([]bool, len(positions))
	err = b.withGroup("ask what is settled in", topic, name, func(g *group) error {
		for i, p := range positions {
			offset, err := parsePosition(p)
			if err != nil {
				return err
			}
			settled[i] = offset < g.floor || offset < g.cursor() && g.entries[offset-g.floor] == nil
		}
		return nil
	})
	return settled, err
}

// withGroup calls f with the group while it holds the lock of the topic. If the topic or the
// group is missing, visit returns ErrGone.
func (b *Backend) withGroup(op, topic, name string, f func(*group) error) error {
	t, err := b.acquire(topic, false)
	if err == nil {
		defer t.unlock()
		err = backend.ErrGone
		if g := t.groups[name]; g != nil {
			err = f(g)
		}
	}
	return failed(err, op, topic+"/"+name)
}
