package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Read implements [backend.Reader]. What cannot be read as a message has its raw
// bytes as Payload.
func (b *Backend) Read(ctx context.Context, topic, from string, limit int) (ms []backend.Message, err error) {
	err = b.look(ctx, "read", topic, func(ctx context.Context) (err error) {
		ms, err = b.read(ctx, b.place(topic), from, limit)
		return err
	})
	return ms, err
}

func (b *Backend) read(ctx context.Context, p *place, from string, limit int) ([]backend.Message, error) {
	seq := uint64(0)
	if from != "" {
		var err error
		if seq, err = parsePosition(from); err != nil {
			return nil, err
		}
	}
	state, err := b.state(ctx, p)
	if err != nil {
		return nil, err
	}
	if p.shared() && state.Msgs == 0 {
		return nil, b.exists(ctx, p)
	}
	seq = max(seq+1, state.FirstSeq)
	var ms []backend.Message
	for len(ms) < limit && seq <= state.LastSeq {
		got, err := b.readMany(ctx, p, seq, limit-len(ms))
		if err == nil && len(got) == 0 {
			// Who gave that answer may not have everything yet; the leader has.
			var one *record
			if one, err = b.readOne(ctx, p, seq); one != nil {
				got = append(got, *one)
			}
		}
		if isCode(err, jetstream.JSErrCodeMessageNotFound) {
			return ms, nil
		}
		if err != nil {
			return ms, err
		}
		for i := range got {
			ms = append(ms, got[i].message(p.topic))
		}
		seq = got[len(got)-1].Sequence + 1
	}
	return ms, nil
}

// A record is a stored message as the API shows it.
type record struct {
	Sequence uint64
	Time     time.Time
	Header   natsgo.Header
	Data     []byte
}

func (r *record) message(topic string) backend.Message {
	m := backend.Message{Topic: topic, Position: position(r.Sequence), Payload: r.Data}
	var mem slab.Slab
	if err := readHeader(&mem, &m, r.Header); err != nil {
		m = backend.Message{Topic: topic, Position: m.Position, Payload: fmt.Appendf(nil, "%v\n\n%s", r.Header, r.Data)}
	}
	return m
}

// A question is where to look for messages.
type question struct {
	Sequence uint64 `json:"seq"`
	Subject  string `json:"next_by_subj"`
	Batch    int    `json:"batch,omitempty"`
}

// readOne asks the leader of a stream for the first message of a topic from seq
// on. There is always one, or an error.
func (b *Backend) readOne(ctx context.Context, p *place, seq uint64) (*record, error) {
	var answer struct {
		Message struct {
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	if err := b.ask(ctx, "STREAM.MSG.GET."+p.stream, question{seq, p.subject, 0}, &answer); err != nil {
		return nil, err
	}
	r := &record{Sequence: answer.Message.Sequence, Time: answer.Message.Time, Data: answer.Message.Data}
	if len(answer.Message.Header) > 0 {
		var err error
		if r.Header, err = natsgo.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, fmt.Errorf("message %d: %w", r.Sequence, err)
		}
	}
	return r, nil
}

// manyAtOnce bounds one answer.
const manyAtOnce = 256

// readMany asks any server that has a copy for the first messages of a topic
// from seq on. It returns none where that cannot be asked.
func (b *Backend) readMany(ctx context.Context, p *place, seq uint64, limit int) ([]record, error) {
	if v, ok := versionOf(b.conn); !ok || v.before(readsByMany) || limit == 1 {
		return nil, nil
	}
	body, err := json.Marshal(question{seq, p.subject, min(limit, manyAtOnce)})
	if err != nil {
		return nil, err
	}
	l, err := b.asking.Get(ctx)
	if err != nil {
		return nil, err
	}
	defer b.asking.Put(l)
	if err := l.begin(1); err != nil {
		return nil, err
	}
	subject := b.api + "DIRECT.GET." + p.stream
	if err := b.conn.PublishRequest(subject, string(l.reply(0)), body); err != nil {
		return nil, err
	}
	var got []record
	for {
		l.asked(0) // for the next of many answers
		var m arrival
		var denied error
		err := l.gather(ctx, func(int) string { return subject }, func(_ int, answer *arrival, err error) {
			if denied = err; err == nil {
				m = *answer
			}
		}, nil)
		switch {
		case err != nil:
			return got, err
		case denied != nil:
			return got, denied
		case m.header.Get("Status") != "": // the end, or nothing there, or nobody who may say
			return got, nil
		}
		// A stored message may have such a header itself: the server's is behind it.
		numbers := m.header["Nats-Sequence"]
		if len(numbers) == 0 {
			return got, nil
		}
		found, err := strconv.ParseUint(numbers[len(numbers)-1], 10, 64)
		if err != nil || found < seq {
			return got, nil
		}
		seq = found + 1
		got = append(got, record{Sequence: found, Header: m.header, Data: m.data})
	}
}

// exists returns an error if a topic of many in a stream has neither messages
// nor groups.
func (b *Backend) exists(ctx context.Context, p *place) error {
	names, err := b.groups(ctx, p)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w: the topic has no messages and no groups", backend.ErrGone)
	}
	return err
}
