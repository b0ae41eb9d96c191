package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

const maxTrip = 4 << 20 // most bytes sent before their answers are awaited; a larger message is sent alone

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.closed.Load() {
		return b.failure("publish", "", backend.ErrClosed)
	}
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	errs := make([]error, len(msgs))
	if err := b.publish(ctx, msgs, errs); err != nil {
		return b.failure("publish", "", classOf(ctx, err, false))
	}
	for i, err := range errs {
		errs[i] = b.failure("publish", msgs[i].Topic, err)
	}
	return backend.AsBatchError(errs)
}

// publish stores msgs, and creates missing streams. errs gets the error of each message. If
// publish itself returns an error, no message was stored.
func (b *Backend) publish(ctx context.Context, msgs []*backend.Message, errs []error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	places := make([]*place, len(msgs))
	b.ensureAll(ctx, msgs, places, errs)
	r, err := b.requesters.Get(ctx)
	if err != nil {
		return err
	}
	defer b.requesters.Put(r)
	for start := 0; start < len(msgs); {
		end := start + tripLen(msgs[start:])
		if err := ctx.Err(); err != nil {
			fill(errs[start:], classOf(ctx, err, false))
			return nil
		}
		t := &trip{b, r, msgs[start:end], places[start:end], errs[start:end]}
		t.run(ctx)
		t.twins(ctx)
		start = end
	}
	return nil
}

// fill sets each nil element of errs to err.
func fill(errs []error, err error) {
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
}

// tripLen returns the number of messages at the front of msgs that are sent before their
// answers are awaited.
func tripLen(msgs []*backend.Message) int {
	size := 0
	for i, m := range msgs {
		if size += m.Size(); i > 0 && (size > maxTrip || i == requestRoom) {
			return i
		}
	}
	return len(msgs)
}

// ensureAll creates the missing streams of all topics of msgs. It sets the place or the
// error of each message.
func (b *broker) ensureAll(ctx context.Context, msgs []*backend.Message, places []*place, errs []error) {
	var failed map[string]error
	for i, m := range msgs {
		if i > 0 && m.Topic == msgs[i-1].Topic {
			places[i], errs[i] = places[i-1], errs[i-1]
			continue
		}
		if errs[i] = failed[m.Topic]; errs[i] != nil {
			continue
		}
		if places[i], errs[i] = b.ensure(ctx, m.Topic); errs[i] != nil {
			errs[i] = classOf(ctx, errs[i], false)
			if failed == nil {
				failed = map[string]error{}
			}
			failed[m.Topic] = errs[i]
		}
	}
}

// A trip publishes messages whose answers are awaited together.
type trip struct {
	backend *Backend
	r       *requester
	msgs    []*backend.Message
	places  []*place
	errs    []error // by message
}

// run publishes the messages that have no error in errs. All messages go through one
// connection, which keeps the order of each topic.
func (t *trip) run(ctx context.Context) {
	r, msgs, errs, most := t.r, t.msgs, t.errs, t.backend.maxPayload-headerRoom
	r.begin(len(msgs))
	defer r.end()
	for _, m := range msgs {
		r.expect(m)
	}
	at := make([]int, 0, len(msgs)) // at[n] is the index in msgs of request n
	for i, m := range msgs {
		if n := m.Size(); errs[i] == nil && n > most {
			errs[i] = fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, most)
		}
		if errs[i] != nil {
			continue
		}
		r.publish(t.places[i], m)
		at = append(at, i)
	}
	err := r.exchange(ctx, conversation{
		patience: answer,
		got:      func(i int, m *natsgo.Msg) { errs[at[i]] = t.stored(at[i], m) },
		failed:   func(i int, err error) { errs[at[i]] = err },
	})
	if err != nil {
		for i, waits := range r.waits[:len(at)] {
			if waits {
				errs[at[i]] = classOf(ctx, err, true)
				t.backend.forget(msgs[at[i]].Topic) // the stream may be deleted, and then nobody answers
			}
		}
	}
}

// expect reserves memory for a copy of m.
func (r *requester) expect(m *backend.Message) {
	r.mem.Expect(len(m.Payload), len(m.Headers)+ownHeaders, r.replyLen()+positionLen)
}

// publish adds a request that publishes a copy of m.
func (r *requester) publish(p *place, m *backend.Message) {
	once := ""
	if m.Once {
		once = p.prefix + escape(m.ID, isPlain) // the server compares the IDs of all topics in a stream
	}
	header := writeHeader(r.mem.Headers(len(m.Headers) + ownHeaders)[:0], m, once)
	r.add(outgoing{subject: p.subject, header: header, data: r.mem.Payload(m.Payload)}, true)
}

// errTwin means that the server did not store a message because another message with its ID
// is on its way. The outcome of that message is not known yet.
var errTwin = fmt.Errorf("%w: another copy of the message is on its way", backend.ErrUnavailable)

// twins resends messages that failed with errTwin, until the outcome of the other message
// with the same ID is known. It gives up after 5 seconds (const answer).
func (t *trip) twins(ctx context.Context) {
	for until := time.Now().Add(answer); time.Now().Before(until); {
		var which []int
		again := &trip{backend: t.backend, r: t.r}
		for i, err := range t.errs {
			if errors.Is(err, errTwin) {
				which = append(which, i)
				again.msgs, again.places = append(again.msgs, t.msgs[i]), append(again.places, t.places[i])
			}
		}
		if len(which) == 0 {
			return
		}
		again.errs = make([]error, len(which))
		if sleep(ctx, nil, 20*time.Millisecond) {
			again.run(ctx)
		} else {
			fill(again.errs, fmt.Errorf("%w: %w", errTwin, ctx.Err()))
		}
		for i, at := range which {
			t.errs[at] = again.errs[i]
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// An ack is the answer of JetStream to a published message.
type ack struct {
	Error     *jetstream.APIError `json:"error"`
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

// stored reads the answer to message i. It sets the message's Position and Duplicate.
func (t *trip) stored(i int, answer *natsgo.Msg) error {
	m, p := t.msgs[i], t.places[i]
	if isUnserved(answer) {
		t.backend.forget(m.Topic)
		return fmt.Errorf("%w: nobody serves the stream: it is deleted, or has no leader", backend.ErrUnavailable)
	}
	m.Duplicate = false
	seq, plain := plainAck(answer.Data, p.stream)
	if !plain {
		var a ack
		if err := json.Unmarshal(answer.Data, &a); err != nil {
			return errors.Join(backend.ErrUnknownOutcome, err)
		}
		switch {
		case a.Error != nil && a.Error.ErrorCode == 10158:
			return errTwin
		case a.Error != nil:
			return classOfAnswer(a.Error)
		case a.Stream != p.stream:
			t.backend.forget(m.Topic)
			return fmt.Errorf("%w: it was stored in the stream %s, which has the subject %s now", backend.ErrUnknownOutcome, a.Stream, p.subject)
		}
		seq, m.Duplicate = a.Sequence, a.Duplicate
	}
	var digits [positionLen]byte
	m.Position = t.r.mem.Text(appendPosition(digits[:0], seq))
	return nil
}

// plainAck reads the most frequent answer, {"stream":"…","seq":7}, because this is faster
// than a JSON decoder. Older servers write a space before "seq". ok is false for any other
// answer.
func plainAck(data []byte, stream string) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok || len(rest) < len(stream) || string(rest[:len(stream)]) != stream {
		return 0, false
	}
	before, digits, ok := bytes.Cut(rest[len(stream):], []byte(`"seq":`))
	number, isEnd := bytes.CutSuffix(digits, []byte("}"))
	if before = bytes.TrimSuffix(before, []byte(" ")); !ok || !isEnd || string(before) != `",` {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 64)
	return seq, err == nil
}
