package redisstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxPipeline = 1000    // most messages of one round trip without publish.lua
	maxScripted = 100     // most messages of one round trip with publish.lua; other clients wait for the script
	maxTrip     = 4 << 20 // most bytes of one round trip with several messages
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.closed.Load() || len(msgs) == 0 {
		return b.failure("publish", "", b.unusable())
	}
	var errs backend.BatchError
	err := b.with(ctx, func(w *wire) error {
		err := b.server.check(ctx, b, w)
		if err != nil {
			return err
		}
		broken := false
		for start := 0; start < len(msgs); {
			end := start + tripLen(msgs[start:], b.options.MaxMessages > 0)
			fail := func(i int, err error) {
				errs.Set(start+i, len(msgs), b.failure("publish", msgs[start+i].Topic, err))
			}
			if !broken {
				broken = b.trip(ctx, w, msgs[start:end], fail)
			} else {
				for i := range end - start {
					fail(i, fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, cmp.Or(ctx.Err(), errBroke)))
				}
			}
			start = end
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
func tripLen(msgs []*backend.Message, bounded bool) int {
	size, most := 0, maxPipeline
	for i, m := range msgs {
		if m.Once || bounded {
			most = maxScripted
		}
		if size += m.Size(); i > 0 && (size > maxTrip || i >= most) {
			return i
		}
	}
	return len(msgs)
}

// trip publishes msgs in one round trip. It calls fail with the index and the error of each
// failed message. broken means that the caller must not send later messages, because the
// connection broke or the server cannot store messages now.
func (b *Backend) trip(ctx context.Context, w *wire, msgs []*backend.Message, fail func(int, error)) (broken bool) {
	t := &w.trip
	t.begin(b, msgs, fail)
	defer t.end()
	if len(t.calls) == 0 {
		return false
	}
	w.send(ctx, 0, t.calls...)
	t.read(fail)
	return slices.ContainsFunc(t.calls, func(c *call) bool { return !isAnswer(c.err) || errors.Is(c.err, backend.ErrUnavailable) })
}

// A trip is one round trip of Publish. It has an XADD for each message. For a topic with a
// limit or a Once message, it has one call of publish.lua instead. A wire keeps its trip,
// because the next round trip uses the memory again. Only the memory of ids is not used
// again, because the positions of the messages are in it.
type trip struct {
	backend *Backend
	msgs    []*backend.Message
	text    []byte // memory of the values of all entries
	entries []value
	calls   []*call
	of      [][]int // for each call, the indexes of its messages
	ids     strings.Builder
	adds    []add
	topic   string // the topic of the last XADD
	key     any    // the key of that topic's stream
}

// A value is the value of the field of an entry: an encoded message. Commands take a *value
// as an argument, because a pointer in an argument needs no allocation.
type value []byte

// MarshalBinary implements [encoding.BinaryMarshaler], by which go-redis gets the bytes.
func (v *value) MarshalBinary() ([]byte, error) { return *v, nil }

// An add is the memory for one XADD: its call, arguments and reply.
type add struct {
	call  call
	args  [5]any
	reply [replySize]byte
	of    [1]int
}

const (
	replySize = 48      // bytes for the reply of an XADD: an id and its length
	keepText  = 1 << 20 // a text with more memory is not kept for the next trip
)

func (t *trip) begin(b *Backend, msgs []*backend.Message, fail func(int, error)) {
	t.backend, t.msgs = b, msgs
	t.encode(fail)
	scripted := t.scripted()
	t.adds = slices.Grow(t.adds[:0], len(msgs))[:len(msgs)]
	for i, m := range msgs {
		if t.entries[i] == nil {
			continue
		}
		if part := scripted[m.Topic]; part != nil {
			if part[0] == i {
				t.script(m.Topic, part)
			}
			continue
		}
		if t.key == nil || t.topic != m.Topic {
			t.topic, t.key = m.Topic, b.streamKey(m.Topic)
		}
		a := &t.adds[i]
		a.args = [...]any{"xadd", t.key, "*", field, &t.entries[i]}
		a.call = call{args: a.args[:], reply: reply{raw: a.reply[:0]}}
		a.of[0] = i
		t.calls, t.of = append(t.calls, &a.call), append(t.of, a.of[:])
	}
}

// end releases messages and replies, so that they can be freed. It keeps the memory for the
// next trip.
func (t *trip) end() {
	t.backend, t.msgs, t.ids = nil, nil, strings.Builder{}
	clear(t.adds)
	clear(t.calls)
	clear(t.of)
	clear(t.entries)
	t.calls, t.of = t.calls[:0], t.of[:0]
	if cap(t.text) > keepText {
		t.text = nil
	}
}

// encode makes the entries of all messages, and calls fail for each message that is too
// large.
func (t *trip) encode(fail func(int, error)) {
	t.entries = slices.Grow(t.entries[:0], len(t.msgs))[:len(t.msgs)]
	size := 0
	for _, m := range t.msgs {
		if n := m.Size(); n <= maxPayload {
			size += n + 64 // 64 bytes for the names of attributes; most messages need no more
		}
	}
	t.text = slices.Grow(t.text[:0], size)
	for i, m := range t.msgs {
		if n := m.Size(); n > maxPayload {
			fail(i, fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, maxPayload))
			t.entries[i] = nil
			continue
		}
		start := len(t.text)
		t.text = append(appendHead(t.text, m), m.Payload...) // if the text grows, earlier entries keep the old memory
		t.entries[i] = t.text[start:len(t.text):len(t.text)]
	}
}

// scripted returns for each topic the indexes of the messages that publish.lua publishes.
// If one message of a topic needs the script, all messages of the topic use it, to keep
// their order.
func (t *trip) scripted() (parts map[string][]int) {
	for _, m := range t.msgs {
		if m.Once || t.backend.options.MaxMessages > 0 {
			if parts == nil {
				parts = map[string][]int{}
			}
			parts[m.Topic] = nil
		}
	}
	if parts == nil {
		return nil
	}
	for i, m := range t.msgs {
		if _, needed := parts[m.Topic]; needed && t.entries[i] != nil {
			parts[m.Topic] = append(parts[m.Topic], i)
		}
	}
	return parts
}

// script adds the call of publish.lua for messages of one topic. list has their indexes.
func (t *trip) script(topic string, list []int) {
	keys := []string{t.backend.streamKey(topic)}
	values := make([]any, 0, 2+2*len(list))
	values = append(values, t.backend.options.MaxMessages, millis(t.backend.options.OnceWindow))
	for _, i := range list {
		mark := 0
		if m := t.msgs[i]; m.Once {
			if len(keys) == 1 {
				keys = append(keys, neverKey(keys[0]))
			}
			keys = append(keys, onceKey(keys[0], m.ID))
			mark = len(keys)
		}
		values = append(values, &t.entries[i], mark)
	}
	t.calls, t.of = append(t.calls, publishScript.call(keys, values...)), append(t.of, list)
}

// read reads the replies. It sets the positions of stored messages, and calls fail for the
// others.
func (t *trip) read(fail func(int, error)) {
	t.ids.Grow(len(t.msgs) * positionLen)
	for n, c := range t.calls {
		p := parser{rest: c.reply.raw}
		failed, answers := c.err, len(t.of[n])
		if c.script != nil && failed == nil {
			answers = p.array()
		}
		for k, i := range t.of[n] {
			if nested := p.nested(); nested != nil { // it ended the script, so all later messages fail
				failed = classOfReply(nested.Error())
			}
			switch {
			case failed == nil && k >= answers:
				failed = fmt.Errorf("%w: the reply is too short", backend.ErrUnknownOutcome)
			case failed == nil:
				failed = t.stored(t.msgs[i], &p, c.script != nil)
			}
			if failed != nil {
				fail(i, failed)
			}
		}
	}
}

// stored reads the reply for one stored message, and sets the Position and Duplicate of m. If
// scripted is set, the reply is from publish.lua, otherwise from XADD.
func (t *trip) stored(m *backend.Message, p *parser, scripted bool) error {
	if scripted {
		p.arrayOf(2)
	}
	id := p.bulk()
	duplicate := scripted && p.integer() == 1
	if p.err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, p.err)
	}
	var buf [positionLen]byte
	start := t.ids.Len()
	t.ids.Write(appendPosition(buf[:0], id))
	m.Position, m.Duplicate = t.ids.String()[start:], duplicate
	return nil
}
