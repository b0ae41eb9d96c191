package redisstream

import (
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

const (
	maxPipeline   = 1000    // messages in one round trip without publish.lua
	maxScripted   = 100     // messages in one round trip with publish.lua, for which other clients wait
	maxBatchBytes = 4 << 20 // bytes in one round trip of several messages
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	var errs backend.BatchError
	err := b.with(ctx, func(sess *session) error {
		start, inspection := 0, &inspection{backend: b, session: sess}
		for broken := false; start < len(msgs) && !broken; {
			p := &sess.batch
			lost := p.lookUpBounds(ctx, inspection, msgs[start:min(start+maxPipeline, len(msgs))])
			part := msgs[start : start+batchLen(msgs[start:], &b.bounds)]
			p.encode(ctx, inspection, part)
			broken = p.send(ctx, b, sess) || lost
			for i, m := range part {
				errs.Set(start+i, len(msgs), b.failure("publish", m.Topic, p.adds[i].err))
			}
			p.reset()
			start += len(part)
		}
		for i := start; i < len(msgs); i++ {
			unsent := fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, cmp.Or(ctx.Err(), errBroken))
			errs.Set(i, len(msgs), b.failure("publish", msgs[i].Topic, unsent))
		}
		return nil
	})
	if err != nil {
		return b.failure("publish", "", err)
	}
	return backend.AsBatchError(errs)
}

var errBroken = errors.New("a call before it has failed")

// batchLen returns how many messages at the front of msgs go into one batch. No batch has two
// calls of publish.lua for one topic, because a server that is loading its data may refuse the
// first call and run the second.
func batchLen(msgs []*backend.Message, bounds *boundCache) int {
	size, most := 0, maxPipeline
	for i, m := range msgs {
		if m.Once || (i == 0 || m.Topic != msgs[i-1].Topic) && bounds.bounded(m.Topic) {
			most = maxScripted
		}
		if size += m.Size(); i > 0 && (size > maxBatchBytes || i >= most) {
			return i
		}
	}
	return len(msgs)
}

// A publishBatch is one round trip of Publish. It has one XADD for each message, but for a topic
// with a limit or a Once message a single call of publish.lua. Sessions keep their batch, so
// that the next round trip can reuse its memory.
type publishBatch struct {
	adds    []entryAdd // one for each message
	calls   []*call
	buf     []byte           // memory for the values of all entries
	topic   string           // topic of the last XADD
	stream  string           // its stream
	key     any              // its stream, as an argument
	flat    bool             // it has the option FlatPublish
	lookups []*boundLookup   // made along with the messages
	failed  map[string]error // by topic: the lookup failed, so the server must not get the messages
}

// An entryAdd adds the entry of one message. It has the memory for one XADD.
type entryAdd struct {
	message *backend.Message
	value   value
	by      *call // adds the entry: own, or a call of publish.lua for several messages
	own     call
	args    [5]any
	reply   [replySize]byte
	err     error
}

// A value is the value of an entry's field: an encoded message. Commands take a *value as an
// argument, because a pointer in an interface needs no allocation.
type value []byte

// MarshalBinary implements [encoding.BinaryMarshaler], through which go-redis gets the bytes.
func (v *value) MarshalBinary() ([]byte, error) { return *v, nil }

// What publish.lua did with a message.
const (
	added = iota
	duplicate
	refused
)

const (
	replySize  = 48      // bytes for the reply to an XADD: an ID and its length
	maxKeptBuf = 1 << 20 // a larger buffer is not kept for the next batch
)

// lookUpBounds asks for the limits of topics that the backend does not know. Lookups that can
// wait become calls of the batch. If a lookup fails, failed has the error for the topic's
// messages. broken means that the connection broke.
func (p *publishBatch) lookUpBounds(ctx context.Context, server *inspection, msgs []*backend.Message) (broken bool) {
	b, now := server.backend, time.Now()
	if b.bounds.all {
		return false
	}
	var calls []*call
	var asked []*boundLookup
	for i, m := range msgs {
		if i > 0 && m.Topic == msgs[i-1].Topic {
			continue
		}
		q := b.bounds.lookup(m.Topic, now)
		if q == noLookup {
			continue
		}
		stream := b.streamKey(m.Topic)
		a := &boundLookup{call{args: []any{"get", settingsKey(stream)}}, m.Topic, now}
		if q == lookupWithBatch {
			p.calls, p.lookups = append(p.calls, &a.call), append(p.lookups, a)
		} else if server.topic(ctx, stream) == nil { // otherwise encode gives the messages the error
			calls, asked = append(calls, &a.call), append(asked, a)
		}
	}
	if len(asked) == 0 {
		return false
	}
	server.session.send(ctx, calls...)
	for _, a := range asked {
		err := a.store(b)
		if err == nil {
			continue
		}
		broken = broken || !isReply(err) || errors.Is(err, backend.ErrUnavailable)
		if errors.Is(err, backend.ErrUnknownOutcome) { // of the lookup; no message was sent
			err = fmt.Errorf("%w: the settings of the topic are not known: %s", backend.ErrUnavailable, err.Error())
		}
		if p.failed == nil {
			p.failed = map[string]error{}
		}
		p.failed[a.topic] = err
	}
	return broken
}

// A boundLookup is a call for the settings of a topic.
type boundLookup struct {
	call
	topic   string
	askedAt time.Time
}

// store reads the reply into the cache.
func (a *boundLookup) store(b *Backend) error {
	text := a.bulk()
	if a.err == nil {
		b.bounds.store(a.topic, readSettings(text).MaxMessages > 0, a.askedAt)
	}
	return a.err
}

// encode makes the entries and the calls for messages. A message that is too large, or whose
// server must not be used, gets an error and no call.
func (p *publishBatch) encode(ctx context.Context, server *inspection, msgs []*backend.Message) {
	b, refused := server.backend, error(nil)
	p.adds = slices.Grow(p.adds, len(msgs))[:len(msgs)]
	scripts := publishCalls(b, msgs)
	for i, m := range msgs {
		a := &p.adds[i]
		if a.message = m; m.Size() > maxPayload {
			a.err = fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, m.Size(), maxPayload)
			continue
		}
		if p.setTopic(b, m.Topic) || i == 0 {
			if refused = server.topic(ctx, p.stream); refused == nil {
				refused = p.failed[m.Topic]
			}
		}
		if a.err = refused; refused != nil {
			continue
		}
		id := any("*")
		if m.AtPosition != "" {
			if id, a.err = parseID(m.AtPosition); a.err != nil {
				continue
			}
		}
		fields := p.fields(a)
		if s := scripts[m.Topic]; s != nil {
			if a.by = &s.call; len(s.values) == 0 {
				p.calls = append(p.calls, a.by)
			}
			s.add(m, id, fields)
			continue
		}
		a.own = call{args: append(append(a.args[:0], "xadd", p.key, id), fields...), reply: reply{raw: a.reply[:0]}}
		a.by = &a.own
		p.calls = append(p.calls, a.by)
	}
	for topic, s := range scripts {
		args := []any{b.options.MaxMessages, millis(b.options.OnceWindow), s.settings, s.never, 0}
		if s.settings > 0 {
			groups := b.members.groups(topic)
			args[4] = len(groups)
			args = append(args, groups...)
		}
		s.call = *publishScript.call(s.keys, append(args, s.values...)...)
	}
}

// setTopic sets the topic of the next XADD. It reports whether that is another topic than
// before.
func (p *publishBatch) setTopic(b *Backend, topic string) (changed bool) {
	if p.key != nil && p.topic == topic {
		return false
	}
	p.topic = strings.Clone(topic) // it may be part of a large string
	p.stream = b.streamKey(topic)
	p.key = p.stream
	p.flat = b.options.Topics[topic].FlatPublish
	return true
}

// fields returns the names and values of the fields of a's entry.
func (p *publishBatch) fields(a *entryAdd) (fields []any) {
	var flat bool
	text := appendHead(p.buf, a.message) // if buf grows, earlier entries keep the old memory
	if p.flat {
		fields, flat = flatFields(a.message)
	}
	if flat {
		fields = append(fields, headField, &a.value)
	} else {
		text = append(text, a.message.Payload...)
		fields = append(a.args[:3], field, &a.value)[3:]
	}
	a.value, p.buf = text[len(p.buf):len(text):len(text)], text
	return fields
}

// send makes the calls and reads the replies. broken means that the caller must not send later
// messages, because the connection broke or the server cannot store messages now.
func (p *publishBatch) send(ctx context.Context, b *Backend, sess *session) (broken bool) {
	if len(p.calls) == 0 {
		return false
	}
	sess.send(ctx, p.calls...)
	for _, a := range p.lookups {
		_ = a.store(b) // after an error, the next Publish asks again
	}
	broken = slices.ContainsFunc(p.calls, func(c *call) bool { return !isReply(c.err) || errors.Is(c.err, backend.ErrUnavailable) })
	p.readReplies()
	return broken
}

// readReplies sets the positions of stored messages and the errors of the others. An error that
// ended a script is the error of all later messages of that script.
func (p *publishBatch) readReplies() {
	for _, c := range p.calls {
		if c.script != nil {
			c.array()
		}
	}
	var mem slab.Slab
	mem.Expect(0, 0, len(p.adds)*positionLen)
	for i := range p.adds {
		a := &p.adds[i]
		if a.err != nil {
			continue
		}
		if a.by.script != nil {
			a.by.arrayOf(2)
		}
		id := a.by.bulk()
		kind := added
		if a.by.script != nil {
			kind = a.by.integer()
		}
		if a.err = a.by.err; a.err == nil && kind == refused {
			a.err = classifyReply(string(id))
		}
		if a.err == nil {
			a.message.Position, a.message.Duplicate = position(&mem, id), kind == duplicate
		}
	}
}

// reset releases messages and replies, so that they can be freed. It keeps the memory for the
// next batch.
func (p *publishBatch) reset() {
	clear(p.adds)
	clear(p.calls)
	p.adds, p.calls, p.buf = p.adds[:0], p.calls[:0], p.buf[:0]
	p.lookups, p.failed = nil, nil
	if cap(p.buf) > maxKeptBuf {
		p.buf = nil
	}
}

// A publishCall is a call of publish.lua for messages of one topic.
type publishCall struct {
	call
	keys     []string
	settings int // index of the settings key, from 1; 0 if the topic has no limit
	never    int // index of the key that never exists; 0 if no message has a mark
	values   []any
}

// publishCalls returns, by topic, an empty call for each topic that needs the script. If one
// message of a topic needs it, all messages of the topic use it, which keeps their order.
func publishCalls(b *Backend, msgs []*backend.Message) (all map[string]*publishCall) {
	bounded := false
	for i, m := range msgs {
		if i == 0 || m.Topic != msgs[i-1].Topic {
			bounded = b.bounds.bounded(m.Topic)
		}
		if !m.Once && !bounded || all[m.Topic] != nil {
			continue
		}
		if all == nil {
			all = map[string]*publishCall{}
		}
		stream := b.streamKey(m.Topic)
		s := &publishCall{keys: []string{stream}}
		if bounded {
			s.keys, s.settings = append(s.keys, settingsKey(stream), trimmedKey(stream)), 2
		}
		all[m.Topic] = s
	}
	return all
}

func (s *publishCall) add(m *backend.Message, id any, fields []any) {
	mark := 0
	if m.Once {
		if s.never == 0 {
			s.keys = append(s.keys, neverKey(s.keys[0]))
			s.never = len(s.keys)
		}
		s.keys = append(s.keys, onceKey(s.keys[0], m.Mark()))
		mark = len(s.keys)
	}
	s.values = append(append(s.values, mark, id, len(fields)), fields...)
}
