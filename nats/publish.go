package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

const maxTrip = 4 << 20 // bytes under way without an answer, or one message

// Publish implements [backend.Backend].
func (b *Backend) Publish(ctx context.Context, msgs []*backend.Message) error {
	if b.closed.Load() {
		return b.failure("publish", "", backend.ErrClosed)
	}
	if len(msgs) == 0 {
		return nil
	}
	errs := make([]error, len(msgs))
	if err := b.publish(ctx, msgs, errs); err != nil {
		return b.failure("publish", "", err)
	}
	for i, err := range errs {
		errs[i] = b.failure("publish", msgs[i].Topic, err)
	}
	return backend.AsBatchError(errs)
}

func (b *Backend) publish(ctx context.Context, msgs []*backend.Message, errs []error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return classOf(ctx, err, false)
	}
	if !b.conn.IsConnected() {
		return classOf(ctx, fmt.Errorf("%w: not connected", backend.ErrUnavailable), false)
	}
	b.ensureAll(ctx, msgs, errs)
	l, err := b.lines.get(ctx)
	if err != nil {
		return classOf(ctx, err, false)
	}
	defer b.lines.put(l)
	for start := 0; start < len(msgs); {
		end := start + tripLen(msgs[start:])
		b.trip(ctx, l, msgs[start:end], errs[start:end])
		start = end
	}
	return nil
}

// tripLen is how many of msgs go out before their answers are awaited.
func tripLen(msgs []*backend.Message) int {
	size := 0
	for i, m := range msgs {
		if size += m.Size(); i > 0 && (size > maxTrip || i == lineRoom) {
			return i
		}
	}
	return len(msgs)
}

// ensureAll makes sure of the streams of all topics.
func (b *Backend) ensureAll(ctx context.Context, msgs []*backend.Message, errs []error) {
	var failed map[string]error
	for i, m := range msgs {
		err, again := failed[m.Topic]
		if !again {
			if err = b.ensure(ctx, m.Topic); err != nil {
				if failed == nil {
					failed = map[string]error{}
				}
				failed[m.Topic] = err
			}
		}
		errs[i] = err
	}
}

// trip publishes those of msgs that have no error yet. The order of a topic is
// that of one connection.
func (b *Backend) trip(ctx context.Context, l *line, msgs []*backend.Message, errs []error) {
	l.begin()
	sent := 0
	waits := make([]bool, len(msgs))
	for i, m := range msgs {
		if errs[i] != nil {
			continue
		}
		if errs[i] = b.send(ctx, l, i, m); errs[i] == nil {
			waits[i] = true
			sent++
		}
	}
	if sent == 0 {
		return
	}
	err := l.gather(ctx, len(msgs), sent, func(i int, m *natsgo.Msg) {
		waits[i] = false
		errs[i] = b.stored(msgs[i], m)
	})
	for i := range msgs {
		if waits[i] {
			errs[i] = classOf(ctx, err, true)
		}
	}
}

// send sends one message. An error is certain to have had no effect.
func (b *Backend) send(ctx context.Context, l *line, i int, m *backend.Message) error {
	if n := m.Size(); n > b.maxPayload() {
		return fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, b.maxPayload())
	}
	msg := &natsgo.Msg{Subject: b.subject(m.Topic), Reply: l.reply(i), Header: writeHeader(m), Data: m.Payload}
	if m.Once {
		msg.Header[jetstream.MsgIDHeader] = []string{escape(m.ID, isPlain)}
	}
	msg.Header[jetstream.ExpectedStreamHeader] = []string{b.streamName(m.Topic)}
	if err := b.conn.PublishMsg(msg); err != nil {
		return classOf(ctx, err, false)
	}
	return nil
}

// An ack is JetStream's answer to a publish.
type ack struct {
	Error     *jetstream.APIError `json:"error"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

// stored reads the answer to m.
func (b *Backend) stored(m *backend.Message, answer *natsgo.Msg) error {
	if answer.Header.Get("Status") == "503" {
		b.forget(m.Topic)
		return fmt.Errorf("%w: the stream was deleted", backend.ErrUnavailable)
	}
	var a ack
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return errors.Join(backend.ErrUnknownOutcome, err)
	}
	if a.Error != nil {
		return classOfAnswer(a.Error)
	}
	m.Position, m.Duplicate = position(a.Sequence), a.Duplicate
	return nil
}

// A position is a sequence number of the stream, with leading zeros.
const positionLen = 20

func position(seq uint64) string {
	s := strconv.FormatUint(seq, 10)
	return "00000000000000000000"[len(s):] + s
}

func parsePosition(p string) (uint64, error) {
	seq, err := strconv.ParseUint(p, 10, 64)
	if len(p) != positionLen || err != nil {
		return 0, fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return seq, nil
}

// Declare implements [backend.Declarer].
func (b *Backend) Declare(ctx context.Context, topic string) error {
	if b.closed.Load() {
		return b.failure("declare", topic, backend.ErrClosed)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return b.failure("declare", topic, b.ensure(ctx, topic))
}
