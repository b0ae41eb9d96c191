package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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

// publish stores msgs. Its own error is certain to have had no effect. It writes
// straight to a tapped connection that is ready for it. All else the client library
// does, and publish leaves a library that holds it up.
func (b *Backend) publish(ctx context.Context, msgs []*backend.Message, errs []error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.tap != nil && b.storeStraight(ctx, msgs, errs) {
		return nil
	}
	return b.storePromptly(ctx, msgs, errs)
}

// store stores msgs, and makes sure of their streams before that.
func (b *Backend) store(ctx context.Context, msgs []*backend.Message, errs []error) error {
	places := make([]*place, len(msgs))
	b.ensureAll(ctx, msgs, places, errs)
	l, err := b.lines.Get(ctx)
	if err != nil {
		return err
	}
	defer b.lines.Put(l)
	b.trips(ctx, l, msgs, places, errs)
	return nil
}

// storeStraight does the same where all that it takes is here already, and nothing
// of it waits for the client library; otherwise it returns false, and has done
// nothing.
func (b *Backend) storeStraight(ctx context.Context, msgs []*backend.Message, errs []error) bool {
	places := make([]*place, len(msgs))
	for i, m := range msgs {
		if i > 0 && m.Topic == msgs[i-1].Topic {
			places[i] = places[i-1]
			continue
		}
		p, ok := b.known.Load(m.Topic)
		if !ok {
			return false
		}
		places[i] = p.(*place)
	}
	l, ok := b.lines.Idle()
	if !ok {
		return false
	}
	defer b.lines.Put(l)
	if l.deaf || l.inbox.outlet() == nil {
		return false
	}
	l.outbox.straight = true
	defer func() { l.outbox.straight = false }()
	b.trips(ctx, l, msgs, places, errs)
	return true
}

// leaves is how long a call waits for the client library when its context is done.
const leaves = 50 * time.Millisecond

// storePromptly does what store does, on copies, and leaves it soon after ctx is
// done.
func (b *Backend) storePromptly(ctx context.Context, msgs []*backend.Message, errs []error) error {
	own, became := make([]*backend.Message, len(msgs)), make([]error, len(msgs))
	for i, m := range msgs {
		c := *m
		c.Headers, c.Payload = slices.Clone(m.Headers), bytes.Clone(m.Payload)
		own[i] = &c
	}
	ended := make(chan error, 1)
	go func() { ended <- b.store(ctx, own, became) }()
	take := func(err error) error {
		copy(errs, became)
		for i, c := range own {
			msgs[i].Position, msgs[i].Duplicate = c.Position, c.Duplicate
		}
		return err
	}
	select {
	case err := <-ended:
		return take(err)
	case <-ctx.Done():
	}
	t := time.NewTimer(leaves)
	defer t.Stop()
	select {
	case err := <-ended:
		return take(err)
	case <-t.C:
		for i := range errs {
			errs[i] = classOf(ctx, ctx.Err(), true)
		}
		return nil
	}
}

// trips sends what goes out together, again and again.
func (b *Backend) trips(ctx context.Context, l *line, msgs []*backend.Message, places []*place, errs []error) {
	for start := 0; start < len(msgs); {
		end := start + tripLen(msgs[start:])
		if err := ctx.Err(); err != nil {
			for i := range errs[start:] {
				if errs[start+i] == nil {
					errs[start+i] = classOf(ctx, err, false)
				}
			}
			return
		}
		b.trip(ctx, l, msgs[start:end], places[start:end], errs[start:end])
		b.twins(ctx, l, msgs[start:end], places[start:end], errs[start:end])
		start = end
	}
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
func (b *Backend) ensureAll(ctx context.Context, msgs []*backend.Message, places []*place, errs []error) {
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

// trip publishes those of msgs that have no error yet. The order of a topic is
// that of one connection.
func (b *Backend) trip(ctx context.Context, l *line, msgs []*backend.Message, places []*place, errs []error) {
	err := l.begin(len(msgs))
	if err == nil {
		err = ctx.Err() // the client library may have held it up until its caller left
	}
	l.patience = int(answer / quiet)
	l.text.Expect(0, 0, len(msgs)*positionLen)
	for i, m := range msgs {
		if errs[i] == nil && err == nil {
			errs[i] = b.add(ctx, l, i, m, places[i])
		}
	}
	if err == nil {
		err = l.send(ctx)
	}
	if err != nil {
		for i := range errs {
			if errs[i] == nil {
				errs[i] = classOf(ctx, err, false)
			}
		}
		return
	}
	err = l.gather(ctx, func(i int) string { return places[i].subject }, func(i int, m *arrival, denied error) {
		if errs[i] = denied; denied == nil {
			errs[i] = b.stored(l, msgs[i], places[i], m)
		}
	}, nil)
	if err == nil {
		return
	}
	for i := range msgs {
		if l.waits[i] {
			errs[i] = classOf(ctx, err, true)
		}
	}
}

// errTwin is the error of a message that is not stored because another copy of
// it is on its way, of which nobody knows yet what will become.
var errTwin = fmt.Errorf("%w: another copy of the message is on its way", backend.ErrUnavailable)

// twins sends again what has met a copy of itself, until that has come to its end.
func (b *Backend) twins(ctx context.Context, l *line, msgs []*backend.Message, places []*place, errs []error) {
	for until := time.Now().Add(answer); time.Now().Before(until); {
		var which []int
		var again []*backend.Message
		var where []*place
		for i, err := range errs {
			if errors.Is(err, errTwin) {
				which, again, where = append(which, i), append(again, msgs[i]), append(where, places[i])
			}
		}
		if len(which) == 0 {
			return
		}
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			for _, at := range which {
				errs[at] = fmt.Errorf("%w: %w", errTwin, ctx.Err())
			}
			return
		}
		became := make([]error, len(which))
		b.trip(ctx, l, again, where, became)
		for i, at := range which {
			errs[at] = became[i]
		}
	}
}

// add adds one message to what is sent. An error is certain to have had no effect.
func (b *Backend) add(ctx context.Context, l *line, i int, m *backend.Message, p *place) error {
	if n, most := m.Size(), l.outbox.maxPayload()-headerRoom; n > most {
		return fmt.Errorf("%w: %d bytes, more than %d", backend.ErrTooLarge, n, most)
	}
	once := ""
	if m.Once {
		once = p.prefix + escape(m.ID, isPlain) // IDs are of a stream, not of a topic
	}
	if err := l.outbox.publish(p.subject, l.reply(i), m, once); err != nil {
		return classOf(ctx, err, false)
	}
	l.asked(i)
	return nil
}

// An ack is JetStream's answer to a publish.
type ack struct {
	Error     *jetstream.APIError `json:"error"`
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
}

// stored reads the answer to m.
func (b *Backend) stored(l *line, m *backend.Message, p *place, answer *arrival) error {
	if answer.isUnserved() {
		b.forget(m.Topic)
		return fmt.Errorf("%w: nobody serves the stream: it is deleted, or has no leader", backend.ErrUnavailable)
	}
	m.Duplicate = false
	seq, plain := plainAck(answer.data, p.stream)
	if !plain {
		var a ack
		if err := json.Unmarshal(answer.data, &a); err != nil {
			return errors.Join(backend.ErrUnknownOutcome, err)
		}
		switch {
		case a.Error != nil && a.Error.ErrorCode == 10158:
			return errTwin
		case a.Error != nil:
			return classOfAnswer(a.Error)
		case a.Stream != p.stream:
			b.forget(m.Topic)
			return fmt.Errorf("%w: it was stored in the stream %s, which has the subject %s now", backend.ErrUnknownOutcome, a.Stream, p.subject)
		}
		seq, m.Duplicate = a.Sequence, a.Duplicate
	}
	var digits [positionLen]byte
	m.Position = l.text.Text(appendPosition(digits[:0], seq))
	return nil
}

// plainAck reads what the server mostly answers: {"stream":"…","seq":7}, with a
// space before "seq" if it is an older one, or with its domain there.
func plainAck(data []byte, stream string) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok || len(rest) < len(stream) || string(rest[:len(stream)]) != stream {
		return 0, false
	}
	rest = rest[len(stream):]
	at := bytes.LastIndexByte(rest, ':')
	digits, ok := bytes.CutSuffix(rest[at+1:], []byte("}"))
	switch before := rest[:at+1]; {
	case !ok || len(digits) == 0 || len(digits) >= positionLen:
		return 0, false
	case string(before) == `","seq":`, string(before) == `", "seq":`:
	case bytes.HasPrefix(before, []byte(`","domain":"`)) && bytes.HasSuffix(before, []byte(`","seq":`)) && bytes.Count(before, []byte(`"`)) == 7:
	default:
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq, true
}
