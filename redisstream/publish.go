package redisstream

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxPipeline = 1000    // messages of one round trip
	maxScripted = 100     // of them, in one call of a script: others wait for as long as it runs
	maxTrip     = 4 << 20 // bytes of one round trip, or one message
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.closed.Load() {
		return b.failure("publish", "", backend.ErrClosed)
	}
	if len(msgs) == 0 {
		return nil
	}
	w, err := b.wires.Get(ctx)
	if err != nil {
		return b.failure("publish", "", classOf(ctx, err, false))
	}
	defer b.wires.Put(w)
	if err := b.server.check(ctx, b, w); err != nil {
		return b.failure("publish", "", err)
	}
	errs := w.trip.outcome(len(msgs))
	broken := false
	for start := 0; start < len(msgs); {
		end := start + tripLen(msgs[start:])
		if broken {
			notSent(ctx, errs[start:end])
		} else {
			broken = b.trip(ctx, w, msgs[start:end], errs[start:end])
		}
		start = end
	}
	failed := false
	for i, err := range errs {
		if err != nil {
			errs[i], failed = b.failure("publish", msgs[i].Topic, err), true
		}
	}
	if failed {
		w.trip.told = nil // it is the caller's now
	}
	return backend.AsBatchError(errs)
}

// notSent is what becomes of the messages behind a trip that broke off.
func notSent(ctx context.Context, errs []error) {
	err := fmt.Errorf("%w: not sent after the connection broke", backend.ErrUnavailable)
	if done := ctx.Err(); done != nil {
		err = fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, done)
	}
	for i := range errs {
		errs[i] = err
	}
}

// tripLen is how many of msgs go out together.
func tripLen(msgs []*backend.Message) int {
	size := 0
	for i, m := range msgs {
		if size += m.Size(); i > 0 && (size > maxTrip || i == maxPipeline) {
			return i
		}
	}
	return len(msgs)
}

// trip publishes msgs in one round trip. It reports whether the connection broke.
func (b *Backend) trip(ctx context.Context, w *wire, msgs []*backend.Message, errs []error) (broken bool) {
	t := &w.trip
	t.begin(b, msgs, errs)
	defer t.end()
	if len(t.calls) == 0 {
		return false
	}
	w.send(ctx, 0, t.calls...)
	t.read()
	if t.elsewhere {
		w.leave()
	}
	return t.calls[len(t.calls)-1].unanswered
}

// A trip is the commands for some messages: an XADD for each or, of a topic that
// has a bound or a Once message, a script for many. It belongs to a wire, and its
// memory is used again by the wire's next trip: but for the positions, nothing of
// it is needed once the answers have been read.
type trip struct {
	backend *Backend
	msgs    []*backend.Message
	errs    []error
	text    []byte // of all entries
	entries []value
	calls   []*call
	of      [][]int // by call: which messages it stores
	ids     strings.Builder
	adds    []add
	told    []error

	elsewhere bool // a script was refused as the server is not, or not any more, a master

	topic string // of the last XADD
	key   any    // of its stream
}

// An add is the memory of an XADD.
type add struct {
	call  call
	args  [5]any
	reply [replySize]byte
	of    [1]int
}

const (
	replySize = 48      // of an XADD: an id and its length
	keepText  = 1 << 20 // the largest text whose memory is kept for the next trip
)

// outcome returns the memory for what becomes of n messages.
func (t *trip) outcome(n int) []error {
	t.told = slices.Grow(t.told[:0], n)[:n]
	clear(t.told)
	return t.told
}

func (t *trip) begin(b *Backend, msgs []*backend.Message, errs []error) {
	t.backend, t.msgs, t.errs, t.elsewhere = b, msgs, errs, false
	t.encode()
	scripted := t.scripted()
	t.adds = slices.Grow(t.adds[:0], len(msgs))[:len(msgs)]
	for i, m := range msgs {
		if errs[i] != nil {
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

// end lets go what is not the trip's own.
func (t *trip) end() {
	t.backend, t.msgs, t.errs = nil, nil, nil
	clear(t.adds)
	clear(t.calls)
	clear(t.of)
	t.calls, t.of, t.ids = t.calls[:0], t.of[:0], strings.Builder{}
	clear(t.entries)
	if cap(t.text) > keepText {
		t.text = nil
	}
}

// encode makes the entries of all messages that are not too large.
func (t *trip) encode() {
	t.entries = slices.Grow(t.entries[:0], len(t.msgs))[:len(t.msgs)]
	size := 0
	for _, m := range t.msgs {
		size += m.Size() + 64 // what is around it; most need no more
		if len(m.Payload) >= apart {
			size -= len(m.Payload)
		}
	}
	t.text = slices.Grow(t.text[:0], size)
	for i, m := range t.msgs {
		if n := m.Size(); n > maxPayload {
			t.errs[i] = fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, maxPayload)
			continue
		}
		start := len(t.text)
		t.text = appendHead(t.text, m) // what is moved when it grows stays where it was for those before
		var payload []byte
		if len(m.Payload) >= apart {
			payload = m.Payload
		} else {
			t.text = append(t.text, m.Payload...)
		}
		t.entries[i] = value{t.text[start:len(t.text):len(t.text)], payload}
	}
}

// scripted returns which messages need a script, by topic: all of a topic, for
// their order.
func (t *trip) scripted() map[string][]int {
	var need map[string]bool
	for _, m := range t.msgs {
		if m.Once || t.backend.options.MaxMessages > 0 {
			if need == nil {
				need = map[string]bool{}
			}
			need[m.Topic] = true
		}
	}
	if len(need) == 0 {
		return nil
	}
	parts := map[string][]int{}
	for i, m := range t.msgs {
		if need[m.Topic] && t.errs[i] == nil {
			parts[m.Topic] = append(parts[m.Topic], i)
		}
	}
	return parts
}

// script adds the calls for a topic's messages. If there are several each brings
// the script with it: of two calls by digest the first could fail and the second
// not, and the order would be lost.
func (t *trip) script(topic string, list []int) {
	several := len(list) > maxScripted
	for len(list) > 0 {
		part := list[:min(len(list), maxScripted)]
		list = list[len(part):]
		keys := []string{t.backend.streamKey(topic)}
		values := make([]any, 0, 2+2*len(part))
		values = append(values, t.backend.options.MaxMessages, millis(t.backend.options.OnceWindow))
		for _, i := range part {
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
		c := &call{args: append(publishScript.args(keys...), values...), script: &publishScript}
		if several {
			publishScript.inFull(c.args)
			c.script = nil
		}
		t.calls, t.of = append(t.calls, c), append(t.of, part)
	}
}

// read sets positions and errors from the replies.
func (t *trip) read() {
	t.ids.Grow(len(t.msgs) * positionLen)
	for n, c := range t.calls {
		p := c.reply.parse()
		if len(c.args) == 5 { // an XADD
			t.stored(t.of[n][0], c.err, &p, false)
		} else {
			t.readScript(t.of[n], c.err, &p)
		}
	}
}

func (t *trip) readScript(part []int, failed error, p *parser) {
	n := 0
	if failed == nil {
		n = p.array()
	}
	for k, i := range part {
		if failed == nil && k < n {
			if nested := p.nested(); nested != nil {
				t.elsewhere = t.elsewhere || isElsewhere(nested)
				failed = fmt.Errorf("%w: %s", classOfReply(nested.Error()), plain(nested.Error()))
			} else {
				p.arrayOf(2)
			}
		} else if failed == nil {
			failed = fmt.Errorf("%w: the reply is too short", backend.ErrUnknownOutcome)
		}
		t.stored(i, failed, p, true)
	}
}

// stored reads what became of message i.
func (t *trip) stored(i int, err error, p *parser, scripted bool) {
	if err != nil {
		t.errs[i] = err
		return
	}
	m := t.msgs[i]
	id := p.bulk()
	duplicate := scripted && p.integer() == 1
	if p.err != nil {
		t.errs[i] = fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, p.err)
		return
	}
	var buf [positionLen]byte
	start := t.ids.Len()
	t.ids.Write(appendPosition(buf[:0], id))
	m.Position, m.Duplicate = t.ids.String()[start:], duplicate
}

// Declare implements [backend.Declarer]. A stream appears with its first message
// or group; what is tried here is the permission, by an id that no stream takes.
func (b *Backend) Declare(ctx context.Context, topic string) error {
	if b.closed.Load() {
		return b.failure("declare", topic, backend.ErrClosed)
	}
	_, err := b.command(ctx, "xadd", b.streamKey(topic), "0-0", field, "")
	if err != nil && strings.Contains(err.Error(), "must be greater than 0-0") {
		return nil
	}
	return b.failure("declare", topic, err)
}
