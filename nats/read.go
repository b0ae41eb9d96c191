package nats

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

var (
	_ backend.Reader  = (*Backend)(nil)
	_ backend.Statser = (*Backend)(nil)
)

// Read implements [backend.Reader]. A message of another program that cannot be decoded
// has its raw bytes as Payload.
func (b *Backend) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	return run(ctx, b, "read", topic, harmless, func(ctx context.Context) ([]backend.Message, error) {
		return b.read(ctx, b.place(topic), from, limit)
	})
}

func (b *broker) read(ctx context.Context, p *place, from backend.Start, limit int) ([]backend.Message, error) {
	state, err := b.state(ctx, p)
	if err != nil {
		return nil, err
	}
	seq, err := b.resolve(ctx, p, from, state)
	if err != nil {
		return nil, err
	}
	var ms []backend.Message
	size := 0
	for len(ms) < limit && seq <= state.LastSeq {
		r, err := b.readOne(ctx, p, seq)
		if isCode(err, jetstream.JSErrCodeMessageNotFound) {
			return ms, nil
		}
		if err != nil {
			return ms, err
		}
		ms = append(ms, r.message(p.topic))
		size += ms[len(ms)-1].Size()
		seq = r.Sequence + 1
		// A row ends at state.LastSeq. Beyond it a message could be stored between two answers,
		// and its successor too, so that the row would miss only the former.
		n := min(uint64(min(limit-len(ms), max(rowBytes*len(ms)/max(size, 1), 1))), state.LastSeq+1-min(seq, state.LastSeq+1))
		if !p.shared() && n > 1 {
			records, err := b.readAll(ctx, p, row(seq, n))
			for i := range records {
				ms = append(ms, records[i].message(p.topic))
				size += ms[len(ms)-1].Size()
			}
			if err != nil {
				return ms, err
			}
			seq += n
		}
	}
	return ms, nil
}

// resolve returns the sequence at which a Read begins.
func (a *api) resolve(ctx context.Context, p *place, from backend.Start, state jetstream.StreamState) (uint64, error) {
	if after, ok := from.After(); ok {
		seq, err := parsePosition(after)
		return max(min(seq, state.LastSeq)+1, state.FirstSeq), err
	}
	at, ok := from.At()
	switch {
	case ok:
		return a.since(ctx, p, at, state)
	case from == backend.StartEarliest:
		return state.FirstSeq, nil
	case from == backend.StartLatest:
		return state.LastSeq + 1, nil
	}
	return 0, fmt.Errorf("%w: start %q", backend.ErrRefused, from)
}

// since returns a sequence from which on all messages of a topic were stored at t or later, and
// before which all were stored earlier. It reads about 30 messages of a billion, each of
// which halves the search.
func (a *api) since(ctx context.Context, p *place, t time.Time, state jetstream.StreamState) (uint64, error) {
	low, high := state.FirstSeq, state.LastSeq+1
	if t.After(state.LastTime) {
		return high, nil
	}
	if !t.After(state.FirstTime) {
		return low, nil
	}
	for low < high {
		middle := low + (high-low)/2
		m, err := a.readOne(ctx, p, middle)
		switch {
		case err == nil && m.Time.Before(t):
			low = m.Sequence + 1
		case err == nil, isCode(err, jetstream.JSErrCodeMessageNotFound):
			high = middle
		default:
			return 0, err
		}
	}
	return low, nil
}

// rowBytes is about the most bytes of the messages of a row.
const rowBytes = 1 << 20

// row returns n sequences that follow each other.
func row(first, n uint64) []uint64 {
	sequences := make([]uint64, n)
	for i := range sequences {
		sequences[i] = first + uint64(i)
	}
	return sequences
}

// readAll reads the messages of a stream that exist with these sequences, of any topic.
func (a *api) readAll(ctx context.Context, p *place, sequences []uint64) ([]record, error) {
	questions := make([]any, len(sequences))
	for i, seq := range sequences {
		questions[i] = map[string]uint64{"seq": seq}
	}
	var errs []error
	records := make([]record, len(sequences))
	err := a.askAll(ctx, "STREAM.MSG.GET."+p.stream, questions, func(i int, m *natsgo.Msg, err error) {
		answer := struct {
			Message *record `json:"message"`
		}{&records[i]}
		if err == nil {
			err = readAnswer(m, &answer)
		}
		if err != nil && !isCode(err, jetstream.JSErrCodeMessageNotFound) {
			errs = append(errs, err)
		}
		records[i].stream = p.stream
	})
	if err = cmp.Or(err, cmp.Or(errs...)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(r record) bool { return r.Sequence == 0 }), nil
}

// A record is a stored message in the API's form.
type record struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Header   []byte    `json:"hdrs"`
	Data     []byte    `json:"data"`

	stream string
}

func (r *record) message(topic string) backend.Message {
	m := backend.Message{Topic: topic, Position: position(r.Sequence), Payload: r.Data}
	var header natsgo.Header
	if len(r.Header) > 0 {
		var err error
		if header, err = natsgo.DecodeHeadersMsg(r.Header); err != nil {
			m.Payload = slices.Concat(r.Header, r.Data)
		}
	}
	readHeader(new(slab.Slab), &m, header, r)
	return m
}

// stored implements origin.
func (r *record) stored() (stream string, sequence uint64, at time.Time) {
	return r.stream, r.Sequence, r.Time
}

// readOne asks the leader of a stream for the first message of a topic with the sequence
// seq or a higher one. The record is never nil.
func (a *api) readOne(ctx context.Context, p *place, seq uint64) (*record, error) {
	var answer struct {
		Message record `json:"message"`
	}
	question := map[string]any{"seq": seq, "next_by_subj": p.subject}
	err := a.ask(ctx, "STREAM.MSG.GET."+p.stream, question, &answer)
	answer.Message.stream = p.stream
	return &answer.Message, err
}

// Stats implements [backend.Statser]. JetStream does not count members, and does not
// separate held from delayed messages. Stats.Members is always [backend.Unknown]. InFlight
// and Delayed are Unknown unless both are zero.
func (b *Backend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return run(ctx, b, "stats", topic+"/"+group, harmless, func(ctx context.Context) (backend.Stats, error) {
		return b.stats(ctx, b.place(topic), group)
	})
}

func (b *broker) stats(ctx context.Context, p *place, group string) (s backend.Stats, err error) {
	state, err := b.state(ctx, p)
	if err != nil {
		return s, err
	}
	var info jetstream.ConsumerInfo
	if err := b.ask(ctx, consumerInfo(p, group), nil, &info); err != nil {
		return s, err
	}
	s.Depth = int64(state.Msgs)
	s.Lag = int64(max(info.NumPending, unread(p, state, info.Delivered.Stream)))
	s.Members, s.Unacked = backend.Unknown, int64(info.NumAckPending)
	if s.Unacked > 0 {
		s.InFlight, s.Delayed = backend.Unknown, backend.Unknown
	}
	if s.Lag == 0 && s.Unacked == 0 {
		return s, nil
	}
	m, err := b.readOne(ctx, p, info.AckFloor.Stream+1)
	if isCode(err, jetstream.JSErrCodeMessageNotFound) { // all were removed meanwhile, as by a maximum age
		s.Lag, s.Unacked, s.InFlight, s.Delayed = 0, 0, 0, 0
		return s, nil
	}
	s.Oldest = m.Time
	return s, err
}

// unread returns how many messages of a stream follow the last delivered message. The
// number of the consumer may be too low, because the consumer learns of stored messages a
// moment later. unread returns 0 if the stream is shared or lacks messages in the middle.
func unread(p *place, state jetstream.StreamState, delivered uint64) uint64 {
	if p.shared() || state.Msgs == 0 || state.NumDeleted > 0 {
		return 0
	}
	delivered = max(delivered, state.FirstSeq-1)
	return max(state.LastSeq, delivered) - delivered
}

// askIdle is like ask, but uses the inbox of an idle requester, if there is one. So it costs
// one message to the server in place of three.
func (b *broker) askIdle(ctx context.Context, verb string, out any) (err error) {
	r, ok := b.requesters.TryGet()
	if !ok {
		return b.ask(ctx, verb, nil, out)
	}
	defer b.requesters.Put(r)
	defer r.end()
	r.begin(1)
	r.out[0] = outgoing{subject: b.prefix + verb}
	r.await(0)
	r.exchange(ctx, conversation{patience: answer, got: func(_ int, m *natsgo.Msg, failure error) {
		if err = failure; err == nil {
			err = readAnswer(m, out)
		}
	}})
	return err
}

// state returns the state of the stream of a topic. In a shared stream, Msgs is the number
// of messages of this topic, and the other fields are about the whole stream. If the topic
// does not exist, the error is ErrGone.
func (b *broker) state(ctx context.Context, p *place) (jetstream.StreamState, error) {
	var info jetstream.StreamInfo
	if !p.shared() {
		err := b.askIdle(ctx, "STREAM.INFO."+p.stream, &info)
		return info.State, err
	}
	err := b.ask(ctx, "STREAM.INFO."+p.stream, map[string]string{"subjects_filter": p.subject}, &info)
	if info.State.Msgs = info.State.Subjects[p.subject]; info.State.Msgs > 0 || err != nil {
		return info.State, err
	}
	if _, declared, _ := settingsOf(p, info.Config); declared {
		return info.State, nil
	}
	groups, err := b.groups(ctx, p)
	if err == nil && len(groups) == 0 {
		err = fmt.Errorf("%w: the topic has no messages, groups or settings", backend.ErrGone)
	}
	return info.State, err
}
