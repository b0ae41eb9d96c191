package inmemory

import (
	"context"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

var (
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
)

// Ping implements [backend.Pinger].
func (b *Backend) Ping(context.Context) error {
	_, err := b.directory.names()
	return failed("ping", err)
}

// Read implements [backend.Reader].
func (b *Backend) Read(_ context.Context, topic, from string, limit int) (ms []backend.Message, err error) {
	defer func() { err = failed("read "+topic, err) }()
	t, err := b.directory.acquire(topic, nil)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	first := t.log.first
	if from != "" {
		offset, err := parsePosition(from)
		if err != nil {
			return nil, err
		}
		first = max(first, min(offset, t.log.next()-1)+1)
	}
	for ; len(ms) < limit && first < t.log.next(); first++ {
		if r := t.log.at(first); !r.removed {
			ms = append(ms, r.message)
		}
	}
	own(len(ms), func(i int) *backend.Message { return &ms[i] })
	return ms, nil
}

// Remove implements [backend.Remover]. A group that has not settled a removed message gets
// a delivery without a payload, whose Err matches [backend.ErrGone].
func (b *Backend) Remove(_ context.Context, topic string, positions []string) (err error) {
	defer func() { err = failed("remove from "+topic, err) }()
	offsets := make([]uint64, len(positions))
	for i, p := range positions {
		if offsets[i], err = parsePosition(p); err != nil {
			return err
		}
	}
	t, err := b.directory.acquire(topic, nil)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	for _, offset := range offsets {
		t.backend.ledger.leave(t.log.remove(offset))
	}
	t.trimRemoved()
	return nil
}

// Stats implements [backend.Statser]. Every number is exact.
func (b *Backend) Stats(_ context.Context, topic, name string) (s backend.Stats, err error) {
	err = b.visit("stats of", topic, name, func(g *group) error {
		log := &g.topic.log
		s = backend.Stats{Depth: int64(log.kept()), Lag: int64(g.lag()), Members: int64(len(g.members))}
		for _, e := range g.entries {
			switch {
			case e == nil: // settled
			case e.held:
				s.InFlight++
			default:
				s.Delayed++
			}
		}
		if g.floor < log.next() {
			s.Oldest = log.at(g.floor).stored
		}
		return nil
	})
	return s, err
}

// Topics implements [backend.Admin].
func (b *Backend) Topics(context.Context) ([]string, error) {
	names, err := b.directory.names()
	return names, failed("topics", err)
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(_ context.Context, topic string) ([]string, error) {
	t, err := b.directory.acquire(topic, nil)
	if err != nil {
		return nil, failed("groups of "+topic, err)
	}
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.groups)), nil
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(_ context.Context, topic string) error {
	return failed("delete "+topic, b.directory.remove(topic))
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(_ context.Context, topic, name string) error {
	return b.visit("delete", topic, name, func(g *group) error {
		delete(g.topic.groups, name)
		g.end(backend.ErrGone)
		g.topic.trim()
		return nil
	})
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(_ context.Context, topic, name string, start backend.Start) error {
	return b.visit("reset", topic, name, func(g *group) error { return g.reset(start) })
}

// visit calls f with the group while it holds the lock of the topic. If the topic or the
// group is missing, visit returns ErrGone.
func (b *Backend) visit(op, topic, name string, f func(*group) error) error {
	t, err := b.directory.acquire(topic, nil)
	if err == nil {
		defer t.mu.Unlock()
		err = backend.ErrGone
		if g := t.groups[name]; g != nil {
			err = f(g)
		}
	}
	return failed(op+" "+topic+"/"+name, err)
}
