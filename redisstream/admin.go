package redisstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

var (
	_ backend.Declarer   = (*Backend)(nil)
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
)

// Ping implements [backend.Pinger].
func (b *Backend) Ping(ctx context.Context) error {
	return b.verb("ping", "", func() error { return b.command(ctx, "ping") })
}

// Declare implements [backend.Declarer]. It only tests whether the client may add to the
// stream, by an XADD with an ID that no stream accepts. The first message or group creates
// the stream. If the memory of the server is full, Declare succeeds too.
func (b *Backend) Declare(ctx context.Context, topic string) error {
	return b.verb("declare", topic, func() error {
		err := b.command(ctx, "xadd", b.streamKey(topic), "0-0", field, "")
		if errors.Is(err, backend.ErrFull) || err != nil && strings.Contains(err.Error(), "must be greater than 0-0") {
			return nil
		}
		return err
	})
}

// Read implements [backend.Reader]. An entry that cannot be decoded becomes a message with
// the raw bytes of the entry as Payload.
func (b *Backend) Read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	return verb(b, "read", topic, func() (ms []backend.Message, err error) {
		start := "-"
		if from != "" {
			if err := checkPosition(from); err != nil {
				return nil, refused(err)
			}
			start = "(" + from
		}
		key := b.streamKey(topic)
		p, err := b.ask(ctx, &call{args: []any{"exists", key}})
		if err == nil && p.integer() == 0 {
			err = fmt.Errorf("%w: no such topic", backend.ErrGone)
		}
		if err == nil {
			p, err = b.ask(ctx, &call{args: []any{"xrange", key, start, "+", "count", max(limit, 0)}})
		}
		if err != nil {
			return nil, err
		}
		var mem slab.Slab
		mem.Expect(0, 0, len(p.rest))
		ms = make([]backend.Message, max(p.array(), 0))
		entries := entries{topic, b.options.Topics[topic]}
		for i := range ms {
			_, _ = entries.read(&p, &mem, &ms[i], false, len(ms)-i) // after an error the message has its raw bytes
		}
		return ms, refused(p.end())
	})
}

// Remove implements [backend.Remover]. After a Remove, the lag of a group may be unknown:
// see [Backend.Stats].
func (b *Backend) Remove(ctx context.Context, topic string, positions []string) error {
	return b.verb("remove", topic, func() error {
		key := b.streamKey(topic)
		p, err := b.ask(ctx, &call{args: []any{"exists", key}})
		if err == nil && p.integer() == 0 {
			err = fmt.Errorf("%w: no such topic", backend.ErrGone)
		}
		for part := range slices.Chunk(positions, walkStep) {
			xdel := []any{"xdel", key}
			for _, position := range part {
				err = cmp.Or(err, refused(checkPosition(position)))
				xdel = append(xdel, position)
			}
			if err != nil {
				return err
			}
			err = b.command(ctx, xdel...)
		}
		return err
	})
}

// refused adds the class ErrRefused to an error. The callers are reads, whose reply may be
// malformed, and calls that failed before they changed anything.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", backend.ErrRefused, err)
}

// Stats implements [backend.Statser]. The lag of a group at the start or the end of the
// topic is exact. The lag of any other group is [backend.Unknown] on Redis 6.2, after a
// Remove, or after another program trimmed the stream. The lag is also unknown for a group
// that began in the middle of the topic, until the group reaches the end. A member that
// ended without Close is counted until one lease after its end.
func (b *Backend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return verb(b, "stats", topic+"/"+group, func() (s backend.Stats, err error) {
		stream := b.streamKey(topic)
		p, err := b.run(ctx, statsScript, []string{stream, trimmedKey(stream)}, group, millis(unknownLease))
		if err != nil {
			return s, err
		}
		p.arrayOf(6)
		s.Depth, s.Lag, s.InFlight, s.Delayed = int64(p.integer()), int64(p.integer()), int64(p.integer()), int64(p.integer())
		s.InFlight -= s.Delayed // the script counts all pending entries; each is either held or delayed
		s.Members = int64(p.integer())
		if oldest := p.bulk(); len(oldest) > 0 {
			ms, _, _ := bytes.Cut(oldest, []byte("-"))
			s.Oldest = time.UnixMilli(int64(p.number(ms)))
		}
		return s, refused(p.end())
	})
}

// Topics implements [backend.Admin]. It scans all keys of the server, or of all masters of
// a Cluster, 1000 at a time.
func (b *Backend) Topics(ctx context.Context) ([]string, error) {
	return verb(b, "topics", "", func() (topics []string, err error) {
		keys, err := b.walk(ctx, b.options.Namespace+":{*}", "stream")
		for _, key := range keys {
			if topic, ok := b.topicOf(key); ok {
				topics = append(topics, topic)
			}
		}
		slices.Sort(topics)
		return slices.Compact(topics), err
	})
}

const walkStep = 1000

// walk returns the keys of all servers that match a pattern and have the type kind. An
// empty kind means any type.
func (b *broker) walk(ctx context.Context, pattern, kind string) (all []string, err error) {
	err = b.with(ctx, func(w *wire) error {
		err := w.do(ctx, 0, func(ctx context.Context) error {
			nodes, err := b.masterNodes(ctx)
			for _, node := range nodes {
				for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
					var keys []string
					keys, cursor, err = node.ScanType(ctx, cursor, pattern, walkStep, kind).Result()
					all = append(all, keys...)
				}
			}
			return err
		})
		if err != nil {
			return classOf(ctx, err, w.sent.Load())
		}
		return nil
	})
	return all, err
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, topic string) ([]string, error) {
	return verb(b, "groups", topic, func() ([]string, error) { return b.groups(ctx, topic) })
}

func (b *Backend) groups(ctx context.Context, topic string) (names []string, err error) {
	p, err := b.run(ctx, groupsScript, []string{b.streamKey(topic)})
	if err != nil {
		return nil, err
	}
	for range p.array() {
		names = append(names, string(p.bulk()))
	}
	slices.Sort(names)
	return names, refused(p.end())
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, topic string) error {
	return b.verb("delete", topic, func() error {
		stream := b.streamKey(topic)
		names, err := b.groups(ctx, topic)
		if err != nil {
			return err
		}
		keys := []any{"unlink", stream, trimmedKey(stream), youngKey(stream)}
		for _, name := range names {
			delayed := delayedKey(stream, name)
			keys = append(keys, delayed, sweptKey(delayed))
		}
		if err := b.command(ctx, keys...); err != nil {
			return err
		}
		// The marks of Once expire by themselves. Until then a new message could count as a
		// duplicate of a deleted message.
		marks, err := b.walk(ctx, stream+":once:*", "")
		for part := range slices.Chunk(marks, walkStep) {
			keys = []any{"unlink"}
			for _, key := range part {
				keys = append(keys, key)
			}
			err = errors.Join(err, b.command(ctx, keys...))
		}
		return err
	})
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, group string) error {
	return b.verb("delete", topic+"/"+group, func() error {
		stream := b.streamKey(topic)
		delayed := delayedKey(stream, group)
		p, err := b.run(ctx, deleteScript, []string{stream, delayed, sweptKey(delayed)}, group)
		if err == nil && p.integer() == 0 {
			err = fmt.Errorf("%w: no such group", backend.ErrGone)
		}
		return err
	})
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return b.verb("reset", topic+"/"+group, func() error {
		id, err := startID(start)
		if err != nil {
			return err
		}
		stream := b.streamKey(topic)
		_, err = b.run(ctx, resetScript, []string{stream, delayedKey(stream, group)}, group, id)
		return err
	})
}
