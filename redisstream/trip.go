package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

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
