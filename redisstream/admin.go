package redisstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

var (
	_ backend.Pinger     = (*Backend)(nil)
	_ backend.Clocker    = (*Backend)(nil)
	_ backend.Reader     = (*Backend)(nil)
	_ backend.Remover    = (*Backend)(nil)
	_ backend.Statser    = (*Backend)(nil)
	_ backend.Maintainer = (*Backend)(nil)
	_ backend.Admin      = (*Backend)(nil)
	_ backend.Settler    = (*Backend)(nil)
)

// exists returns ErrGone if the topic with this stream does not exist.
func (b *broker) exists(ctx context.Context, stream string) error {
	c := b.command(ctx, "exists", stream)
	if c.integer() == 0 && c.err == nil {
		return fmt.Errorf("%w: no such topic", backend.ErrGone)
	}
	return c.err
}

// Read implements [backend.Reader]. An entry that cannot be decoded becomes a message whose
// Payload is the raw entry.
func (b *Backend) Read(ctx context.Context, topic string, from backend.Start, limit int) (ms []backend.Message, err error) {
	defer func() { err = b.failure("read", topic, err) }()
	start, err := startID(from)
	if err != nil {
		return nil, err
	}
	switch {
	case from == backend.StartLatest:
		limit = 0
		start = "-"
	case start[0] == '@':
		start = start[1:] // an ID without its second number
	case from != backend.StartEarliest:
		start = "(" + start
	}
	stream := b.streamKey(topic)
	if err := b.exists(ctx, stream); err != nil {
		return nil, err
	}
	c := b.command(ctx, "xrange", stream, start, "+", "count", max(limit, 0))
	var mem slab.Slab
	mem.Expect(0, 0, len(c.rest))
	ms = make([]backend.Message, max(c.array(), 0))
	entries := entryReader{topic, b.options.Topics[topic]}
	for i := range ms {
		_, _ = entries.read(&c.parser, &mem, &ms[i], false, len(ms)-i) // after an error the message has the raw bytes
	}
	return ms, c.end()
}

// Remove implements [backend.Remover]. Afterwards the lag of a group may be unknown; see
// [Backend.Stats].
func (b *Backend) Remove(ctx context.Context, topic string, positions []string) error {
	stream := b.streamKey(topic)
	err := b.exists(ctx, stream)
	for part := range slices.Chunk(positions, scanStep) {
		xdel := []any{"xdel", stream}
		for _, position := range part {
			err = cmp.Or(err, checkPosition(position))
			xdel = append(xdel, *entryID(&position))
		}
		if err == nil {
			err = b.command(ctx, xdel...).err
		}
	}
	return b.failure("remove", topic, err)
}

// Stats implements [backend.Statser]. The lag is exact for a group at the start or the end of
// the topic. For any other group it is [backend.Unknown] on Redis 6.2, after a Remove, after
// another program has trimmed the stream, and, if the group began in the middle of the topic,
// until it reaches the end. A member that ended without Close is counted until one lease after
// its end. Oldest is also zero if another program chose an ID that is not a time.
func (b *Backend) Stats(ctx context.Context, topic, group string) (s backend.Stats, err error) {
	stream := b.streamKey(topic)
	c := b.run(ctx, statsScript, []string{stream, trimmedKey(stream)}, group, millis(unknownLease))
	c.arrayOf(6)
	for _, n := range []*int64{&s.Depth, &s.Lag, &s.Unacked, &s.Delayed, &s.Members} {
		*n = int64(c.integer())
	}
	s.InFlight = s.Unacked - s.Delayed // each pending entry is either held or delayed
	if oldest := c.bulk(); len(oldest) > 0 {
		if at, known := entryTime(string(oldest)); known {
			s.Oldest = at
		}
	}
	return s, b.failure("stats", topic+"/"+group, c.end())
}

// Topics implements [backend.Admin]. It scans all keys of the server, or of all masters of a
// Cluster, 1000 at a time.
func (b *Backend) Topics(ctx context.Context) (topics []string, err error) {
	keys, err := b.scanKeys(ctx, string(b.namespace)+":{*}", "stream")
	for _, key := range keys {
		if topic, ok := b.topicOf(key); ok {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics), b.failure("topics", "", err)
}

const scanStep = 1000

// scanKeys returns the keys of all servers that match a pattern and have the type kind. An empty
// kind means any type.
func (b *broker) scanKeys(ctx context.Context, pattern, kind string) (all []string, err error) {
	err = b.with(ctx, func(sess *session) error {
		err := sess.do(ctx, func(ctx context.Context) error {
			nodes, err := b.masterNodes(ctx)
			for _, node := range nodes {
				for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
					var keys []string
					keys, cursor, err = node.ScanType(ctx, cursor, pattern, scanStep, kind).Result()
					all = append(all, keys...)
				}
			}
			return err
		})
		if err != nil {
			return classify(ctx, err, sess.sendState.Load() == written)
		}
		return nil
	})
	return all, err
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, topic string) (names []string, err error) {
	c := b.run(ctx, groupsScript, []string{b.streamKey(topic)})
	for range c.array() {
		names = append(names, string(c.bulk()))
	}
	slices.Sort(names)
	return names, b.failure("groups", topic, c.end())
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, topic string) error {
	names, err := b.Groups(ctx, topic)
	if err != nil {
		return err
	}
	stream := b.streamKey(topic)
	keys := []any{"unlink", stream, trimmedKey(stream), youngKey(stream), turnKey(stream), settingsKey(stream)}
	for _, name := range names {
		for _, key := range groupKeys(stream, name)[1:] {
			keys = append(keys, key)
		}
	}
	if err := b.command(ctx, keys...).err; err != nil {
		return b.failure("delete", topic, err)
	}
	b.bounds.store(topic, false, time.Now())
	// The marks of Once and of instances would expire by themselves, but until then a new
	// message could be taken for a duplicate of a deleted one.
	marks, err := b.scanKeys(ctx, stream+":*", "")
	for part := range slices.Chunk(marks, scanStep) {
		keys = []any{"unlink", neverKey(stream)} // at least one key
		for _, key := range part {
			if isMark(stream, key) {
				keys = append(keys, key)
			}
		}
		err = errors.Join(err, b.command(ctx, keys...).err)
	}
	return b.failure("delete", topic, err)
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, group string) error {
	stream := b.streamKey(topic)
	c := b.run(ctx, deleteScript, groupKeys(stream, group), group)
	if c.integer() == 0 && c.err == nil {
		c.err = fmt.Errorf("%w: no such group", backend.ErrGone)
	}
	return b.failure("delete", topic+"/"+group, c.err)
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	id, err := startID(start)
	if err == nil {
		stream := b.streamKey(topic)
		err = b.run(ctx, resetScript, []string{stream, delayedKey(stream, group)}, group, id).err
	}
	return b.failure("reset", topic+"/"+group, err)
}

// Settle implements [backend.Settler].
func (b *Backend) Settle(ctx context.Context, topic, group, position string) (had bool, err error) {
	err = checkPosition(position)
	if err == nil {
		stream := b.streamKey(topic)
		c := b.run(ctx, settleScript, []string{stream, delayedKey(stream, group)}, group, position)
		code := c.integer() // see settle.lua
		if had, err = code == 1, c.err; err == nil && code == 0 {
			err = fmt.Errorf("%w: the group has not received the message at %s yet", backend.ErrRefused, position)
		}
	}
	return had, b.failure("settle in", topic+"/"+group, err)
}

// Settled implements [backend.Settler].
func (b *Backend) Settled(ctx context.Context, topic, group string, positions []string) (settled []bool, err error) {
	settled = make([]bool, 0, len(positions))
	for part := range slices.Chunk(positions, maxFence) {
		args := make([]any, 1, 1+len(part))
		args[0] = group
		for i := range part {
			err = cmp.Or(err, checkPosition(part[i]))
			args = append(args, part[i])
		}
		if err != nil {
			break
		}
		c := b.run(ctx, settledScript, []string{b.streamKey(topic)}, args...)
		for range c.array() {
			settled = append(settled, c.integer() == 1)
		}
		if err = c.end(); err != nil {
			break
		}
	}
	return settled, b.failure("ask what is settled in", topic+"/"+group, err)
}

var _ backend.Pauser = (*Backend)(nil)

// Pause implements [backend.Pauser]. A pause is a key whose text has the form of a URL query,
// such as since=1795255882779698&by=ada&why=INC-7. It expires at the end of the pause. Members
// see a pause at the next run of take.lua, within half a second, and the end of a pause or a
// Resume at the next Receive.
func (b *Backend) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return b.failure("pause", topic+"/"+group, err)
	}
	text, until := url.Values{"by": {p.By}, "why": {p.Why}}, int64(0)
	if !p.Until.IsZero() {
		text.Set("until", p.Until.UTC().Format(time.RFC3339Nano))
		until = max(p.Until.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 1) // rounded up
	}
	_, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "begin", until, text.Encode())
	return b.failure("pause", topic+"/"+group, err)
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(ctx context.Context, topic, group string) error {
	_, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "end")
	return b.failure("resume", topic+"/"+group, err)
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	text, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "ask")
	return readPause(text), b.failure("ask for the pause of", topic+"/"+group, err)
}

func pauseKeys(stream, group string) []string {
	return []string{stream, pauseKey(delayedKey(stream, group))}
}

// pause runs pause.lua, and returns the text of the current pause.
func (b *broker) pause(ctx context.Context, keys []string, args ...any) (text []byte, err error) {
	c := b.run(ctx, pauseScript, keys, args...)
	text = c.bulk()
	return text, c.err
}

// readPause parses the text of a pause. An empty text means that there is none.
func readPause(text []byte) (p backend.Pause) {
	values, err := url.ParseQuery(string(text))
	if err != nil || len(text) == 0 {
		return p
	}
	micros, _ := strconv.ParseInt(values.Get("since"), 10, 64)
	p = backend.Pause{Since: time.UnixMicro(micros), By: values.Get("by"), Why: values.Get("why")}
	p.Until, _ = time.Parse(time.RFC3339Nano, values.Get("until"))
	return p
}
