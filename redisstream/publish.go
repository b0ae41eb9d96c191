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
	maxPipeline = 1000    // most messages of one round trip without publish.lua
	maxScripted = 100     // most messages of one round trip with publish.lua; other clients wait for the script
	maxTrip     = 4 << 20 // most bytes of one round trip with several messages
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	var errs backend.BatchError
	err := b.with(ctx, func(w *wire) error {
		start, inspection := 0, &inspection{backend: b, wire: w}
		for broken := false; start < len(msgs) && !broken; {
			t := &w.trip
			lost := t.know(ctx, inspection, msgs[start:min(start+maxPipeline, len(msgs))])
			part := msgs[start : start+tripLen(msgs[start:], &b.bounds)]
			t.begin(ctx, inspection, part)
			broken = t.publish(ctx, b, w) || lost
			for i, m := range part {
				errs.Set(start+i, len(msgs), b.failure("publish", m.Topic, t.adds[i].err))
			}
			t.end()
			start += len(part)
		}
		for i := start; i < len(msgs); i++ {
			unsent := fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, cmp.Or(ctx.Err(), errBroke))
			errs.Set(i, len(msgs), b.failure("publish", msgs[i].Topic, unsent))
		}
		return nil
	})
	if err != nil {
		return b.failure("publish", "", err)
	}
	return backend.AsBatchError(errs)
}

var errBroke = errors.New("a call before it has failed")

// tripLen returns the number of messages at the front of msgs that go into one trip. No
// trip has two calls of publish.lua for one topic. A server that is loading its data may
// refuse the first call and run the second.
func tripLen(msgs []*backend.Message, bounds *bounds) int {
	size, most := 0, maxPipeline
	for i, m := range msgs {
		if m.Once || (i == 0 || m.Topic != msgs[i-1].Topic) && bounds.set(m.Topic) {
			most = maxScripted
		}
		if size += m.Size(); i > 0 && (size > maxTrip || i >= most) {
			return i
		}
	}
	return len(msgs)
}

// A trip is one round trip of Publish. It has an XADD for each message. For a topic with a
// limit or a Once message, it has one call of publish.lua instead. A wire keeps its trip,
// because the next round trip uses the memory again.
type trip struct {
	adds   []add // one for each message
	calls  []*call
	text   []byte           // memory of the values of all entries
	topic  string           // the topic of the last XADD
	stream string           // the key of that topic's stream
	key    any              // the same
	flat   bool             // that topic has the option FlatPublish
	asked  []*ask           // for bounds, with the messages
	failed map[string]error // by topic, if the server must not get messages before it has told the bound
}

// An add adds the entry of one message. It has the memory for one XADD.
type add struct {
	message *backend.Message
	value   value
	by      *call // the call that adds it: own, or a call of publish.lua for several messages
	own     call
	args    [5]any
	reply   [replySize]byte
	err     error
}

// A value is the value of the field of an entry: an encoded message. Commands take a *value
// as an argument, because a pointer in an argument needs no allocation.
type value []byte

// MarshalBinary implements [encoding.BinaryMarshaler], by which go-redis gets the bytes.
func (v *value) MarshalBinary() ([]byte, error) { return *v, nil }

// These numbers say what publish.lua did with a message.
const (
	added = iota
	duplicate
	refused
)

const (
	replySize = 48      // bytes for the reply of an XADD: an id and its length
	keepText  = 1 << 20 // a text with more memory is not kept for the next trip
)

// know asks for the bounds of topics that the backend does not know. Questions that can wait
// become calls of the trip. If a question has no answer, failed has the error for the
// messages of the topic. broken means that the connection broke.
func (t *trip) know(ctx context.Context, server *inspection, msgs []*backend.Message) (broken bool) {
	b, now := server.backend, time.Now()
	if b.bounds.all {
		return false
	}
	var calls []*call
	var asked []*ask
	for i, m := range msgs {
		if i > 0 && m.Topic == msgs[i-1].Topic {
			continue
		}
		q := b.bounds.question(m.Topic, now)
		if q == answered {
			continue
		}
		stream := b.streamKey(m.Topic)
		a := &ask{call{args: []any{"get", settingsKey(stream)}}, m.Topic, now}
		if q == again {
			t.calls, t.asked = append(t.calls, &a.call), append(t.asked, a)
		} else if server.topic(ctx, stream) == nil { // its error is the error of the messages
			calls, asked = append(calls, &a.call), append(asked, a)
		}
	}
	if len(asked) == 0 {
		return false
	}
	server.wire.send(ctx, calls...)
	for _, a := range asked {
		err := a.learn(b)
		if err == nil {
			continue
		}
		broken = broken || !isAnswer(err) || errors.Is(err, backend.ErrUnavailable)
		if errors.Is(err, backend.ErrUnknownOutcome) { // of the question; no message was sent
			err = fmt.Errorf("%w: the settings of the topic are not known: %s", backend.ErrUnavailable, err.Error())
		}
		if t.failed == nil {
			t.failed = map[string]error{}
		}
		t.failed[a.topic] = err
	}
	return broken
}

// An ask is a call for the settings of a topic.
type ask struct {
	call
	topic string
	at    time.Time
}

// learn reads the answer.
func (a *ask) learn(b *Backend) error {
	text := a.bulk()
	if a.err == nil {
		b.bounds.learn(a.topic, readSettings(text).MaxMessages > 0, a.at)
	}
	return a.err
}

// begin makes the entries and the calls for messages. A message that is too large gets an
// error and no call, and so does a message whose server must not be used.
func (t *trip) begin(ctx context.Context, server *inspection, msgs []*backend.Message) {
	b, refused := server.backend, error(nil)
	t.adds = slices.Grow(t.adds, len(msgs))[:len(msgs)]
	scripts := scripts(b, msgs)
	for i, m := range msgs {
		a := &t.adds[i]
		if a.message = m; m.Size() > maxPayload {
			a.err = fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, m.Size(), maxPayload)
			continue
		}
		if t.to(b, m.Topic) || i == 0 {
			if refused = server.topic(ctx, t.stream); refused == nil {
				refused = t.failed[m.Topic]
			}
		}
		if a.err = refused; refused != nil {
			continue
		}
		id := any("*")
		if m.AtPosition != "" {
			if id, a.err = givenID(m.AtPosition); a.err != nil {
				continue
			}
		}
		fields := t.fields(a)
		if s := scripts[m.Topic]; s != nil {
			if a.by = &s.call; len(s.values) == 0 {
				t.calls = append(t.calls, a.by)
			}
			s.add(m, id, fields)
			continue
		}
		a.own = call{args: append(append(a.args[:0], "xadd", t.key, id), fields...), reply: reply{raw: a.reply[:0]}}
		a.by = &a.own
		t.calls = append(t.calls, a.by)
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

// to makes topic the topic of the next XADD. It reports whether the topic before was another.
func (t *trip) to(b *Backend, topic string) (changed bool) {
	if t.key != nil && t.topic == topic {
		return false
	}
	t.topic = strings.Clone(topic) // it may be part of a large string
	t.stream = b.streamKey(topic)
	t.key = t.stream
	t.flat = b.options.Topics[topic].FlatPublish
	return true
}

// fields returns the names and the values of the fields of the entry of a.
func (t *trip) fields(a *add) (fields []any) {
	var flat bool
	text := appendHead(t.text, a.message) // if it grows, earlier entries keep the old memory
	if t.flat {
		fields, flat = flatFields(a.message)
	}
	if flat {
		fields = append(fields, headField, &a.value)
	} else {
		text = append(text, a.message.Payload...)
		fields = append(a.args[:3], field, &a.value)[3:]
	}
	a.value, t.text = text[len(t.text):len(text):len(text)], text
	return fields
}

// publish makes the calls, and reads the replies. broken means that the caller must not
// send later messages, because the connection broke or the server cannot store messages now.
func (t *trip) publish(ctx context.Context, b *Backend, w *wire) (broken bool) {
	if len(t.calls) == 0 {
		return false
	}
	w.send(ctx, t.calls...)
	for _, a := range t.asked {
		_ = a.learn(b) // without an answer, the next Publish asks again
	}
	broken = slices.ContainsFunc(t.calls, func(c *call) bool { return !isAnswer(c.err) || errors.Is(c.err, backend.ErrUnavailable) })
	t.read()
	return broken
}

// read reads the replies. It sets the positions of stored messages, and the errors of the
// others. If an error ended a script, all later messages of the script have it.
func (t *trip) read() {
	for _, c := range t.calls {
		if c.script != nil {
			c.array()
		}
	}
	var mem slab.Slab
	mem.Expect(0, 0, len(t.adds)*positionLen)
	for i := range t.adds {
		a := &t.adds[i]
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
			a.err = classOfReply(string(id))
		}
		if a.err == nil {
			a.message.Position, a.message.Duplicate = position(&mem, id), kind == duplicate
		}
	}
}

// end releases messages and replies, so that they can be freed. It keeps the memory for the
// next trip.
func (t *trip) end() {
	clear(t.adds)
	clear(t.calls)
	t.adds, t.calls, t.text = t.adds[:0], t.calls[:0], t.text[:0]
	t.asked, t.failed = nil, nil
	if cap(t.text) > keepText {
		t.text = nil
	}
}

// An addScript is a call of publish.lua, for messages of one topic.
type addScript struct {
	call
	keys     []string
	settings int // index of the key of the settings, from 1; 0 if the topic has no bound
	never    int // index of the key that never exists; 0 if no message has a mark
	values   []any
}

// scripts returns an empty call for each topic that needs the script, by topic. If one
// message of a topic needs it, all messages of the topic use it, to keep their order.
func scripts(b *Backend, msgs []*backend.Message) (all map[string]*addScript) {
	bounded := false
	for i, m := range msgs {
		if i == 0 || m.Topic != msgs[i-1].Topic {
			bounded = b.bounds.set(m.Topic)
		}
		if !m.Once && !bounded || all[m.Topic] != nil {
			continue
		}
		if all == nil {
			all = map[string]*addScript{}
		}
		stream := b.streamKey(m.Topic)
		s := &addScript{keys: []string{stream}}
		if bounded {
			s.keys, s.settings = append(s.keys, settingsKey(stream), trimmedKey(stream)), 2
		}
		all[m.Topic] = s
	}
	return all
}

func (s *addScript) add(m *backend.Message, id any, fields []any) {
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
