package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.closed.Load() {
		return failure(b.closed.Load(), "publish", "", backend.ErrClosed)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	errs := make([]error, 0, len(msgs))
	for some := range slices.Chunk(msgs, maxRequests) {
		errs = append(errs, b.publish(ctx, some)...)
	}
	for i, err := range errs {
		errs[i] = failure(b.closed.Load(), "publish", msgs[i].Topic, err)
	}
	return backend.AsBatchError(errs)
}

// errNoRoom means that the server refused a message because of one of the stream's bounds.
var errNoRoom = fmt.Errorf("%w: a bound of the stream is reached", backend.ErrFull)

// errPending means that the outcome of a message is not known yet and that it is to be sent,
// perhaps again: the server did not store it because another message with its ID is on its
// way.
var errPending = fmt.Errorf("%w: another copy of the message is on its way", backend.ErrUnavailable)

// publish stores msgs, creating missing streams, and returns the error of each message. All
// messages go through one connection, which keeps the order of each topic.
//
// A message that meets another copy of itself on its way is sent again until the outcome of
// that copy is known, for at most answerTimeout. A message that the server refuses because of
// a bound of its stream is sent again once, if room can be made.
func (b *Backend) publish(ctx context.Context, msgs []*backend.Message) []error {
	errs := make([]error, len(msgs))
	locs := b.ensureTopics(ctx, msgs, errs)
	r, err := b.requester(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	defer b.requesters.Put(r)
	for i, m := range msgs {
		if n, most := m.Size(), b.maxPayload-headerRoom; errs[i] == nil && n > most {
			errs[i] = fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, most)
		} else if errs[i] == nil {
			if errs[i] = locs[i].capacity.tooLarge(n); errs[i] != nil {
				b.forget(m.Topic) // the bound may have changed
			}
		}
		if errs[i] == nil {
			errs[i] = errPending // to be sent
		}
	}
	reserved, refilled := b.maintainer.reserve(ctx, msgs, locs, errs), false
	defer func() {
		for _, r := range reserved {
			r.loc.capacity.release(r.need)
		}
	}()
	for until := time.Now().Add(answerTimeout); ; {
		b.send(ctx, r, msgs, locs, errs)
		if !refilled && b.maintainer.refill(ctx, msgs, locs, errs, reserved) {
			refilled = true
			continue
		}
		switch {
		case !slices.Contains(errs, errPending), time.Now().After(until):
			return errs
		case !sleep(ctx, nil, 20*time.Millisecond):
			for i := range errs {
				if errs[i] == errPending { //nolint:errorlint // a marker, never wrapped
					errs[i] = fmt.Errorf("%w: %w", errPending, ctx.Err())
				}
			}
			return errs
		}
	}
}

// send publishes the messages whose error is errPending.
func (b *Backend) send(ctx context.Context, r *requester, msgs []*backend.Message, locs []*location, errs []error) {
	r.compose(msgs, locs, errs)
	defer r.end()
	r.exchange(ctx, callOptions{silenceLimit: answerTimeout, onAnswer: func(i int, m *natsgo.Msg, err error) {
		if err == nil {
			err = b.published(r, locs[i], msgs[i], m)
		}
		if errs[i] = classOf(ctx, err, true); errors.Is(errs[i], backend.ErrUnknownOutcome) {
			b.forget(msgs[i].Topic) // the stream may have been deleted: then nobody answers
		}
	}})
}

// compose starts a call that publishes copies of the messages whose error is errPending.
func (r *requester) compose(msgs []*backend.Message, locs []*location, errs []error) {
	r.begin(len(msgs))
	for i, m := range msgs {
		if errs[i] == errPending { //nolint:errorlint // a marker, never wrapped
			r.mem.Expect(len(m.Payload), len(m.Headers)+ownHeaders, r.replyLen()+positionLen)
		}
	}
	for i, m := range msgs {
		if errs[i] != errPending { //nolint:errorlint // a marker, never wrapped
			continue
		}
		once := ""
		if m.Once {
			once = locs[i].prefix + escape(m.Mark(), isPlain) // the server compares the IDs of all topics of a stream
		}
		header := writeHeader(r.mem.Headers(len(m.Headers) + ownHeaders)[:0], m, once)
		r.out[i] = outgoing{subject: locs[i].subject, header: header, data: r.mem.Payload(m.Payload)}
		r.await(i)
	}
}

// ensureTopics creates the missing streams for msgs. It returns the location of each message
// and sets its error.
func (b *Backend) ensureTopics(ctx context.Context, msgs []*backend.Message, errs []error) []*location {
	locs := make([]*location, len(msgs))
	for i, m := range msgs {
		first := slices.IndexFunc(msgs, func(o *backend.Message) bool { return o.Topic == m.Topic })
		if first < i {
			locs[i], errs[i] = locs[first], errs[first]
			continue
		}
		locs[i], errs[i] = b.ensureTopic(ctx, m.Topic)
		errs[i] = classOf(ctx, errs[i], false)
	}
	return locs
}

// A pubAck is JetStream's answer to a published message.
type pubAck struct {
	Error     *jetstream.APIError `json:"error"`
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

// published reads the answer to a message and sets its Position and Duplicate.
func (b *Backend) published(r *requester, loc *location, m *backend.Message, answer *natsgo.Msg) error {
	if isUnserved(answer) {
		b.forget(m.Topic)
		return fmt.Errorf("%w: nobody serves the stream: it has been deleted or has no leader", backend.ErrUnavailable)
	}
	m.Duplicate = false
	seq, plain := parsePlainAck(answer.Data, loc.stream)
	if !plain {
		var a pubAck
		if err := json.Unmarshal(answer.Data, &a); err != nil {
			return errors.Join(backend.ErrUnknownOutcome, err)
		}
		switch {
		case a.Error != nil && a.Error.ErrorCode == 10158:
			return errPending
		case a.Error != nil:
			return classOfAnswer(a.Error)
		case a.Stream != loc.stream:
			return fmt.Errorf("%w: it was stored in stream %s, which now has subject %s", backend.ErrUnknownOutcome, a.Stream, loc.subject)
		}
		seq, m.Duplicate = a.Sequence, a.Duplicate
	}
	loc.capacity.advance(seq)
	var digits [positionLen]byte
	m.Position = r.mem.Text(appendPosition(digits[:0], seq))
	return nil
}

// parsePlainAck reads the most common answer, {"stream":"…","seq":7}, faster than a JSON
// decoder does. Older servers write a space before "seq". ok is false for any other answer.
func parsePlainAck(data []byte, stream string) (seq uint64, ok bool) {
	rest, isAck := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !isAck || len(rest) < len(stream) || string(rest[:len(stream)]) != stream {
		return 0, false
	}
	before, number, isOne := bytes.Cut(bytes.TrimSuffix(rest[len(stream):], []byte("}")), []byte(`"seq":`))
	if !isOne || string(bytes.TrimSpace(before)) != `",` {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(number), 10, 64)
	return seq, err == nil
}
