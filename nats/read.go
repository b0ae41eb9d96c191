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
		return b.read(ctx, b.locate(topic), from, limit)
	})
}

func (b *Backend) read(ctx context.Context, loc *location, from backend.Start, limit int) ([]backend.Message, error) {
	state, err := b.state(ctx, loc)
	if err != nil {
		return nil, err
	}
	seq, err := b.resolve(ctx, loc, from, state)
	if err != nil {
		return nil, err
	}
	var ms []backend.Message
	size := 0
	for len(ms) < limit && seq <= state.LastSeq {
		r, err := b.readOne(ctx, loc, seq)
		if isCode(err, jetstream.JSErrCodeMessageNotFound) {
			return ms, nil
		}
		if err != nil {
			return ms, err
		}
		ms = append(ms, r.message(loc.topic))
		size += ms[len(ms)-1].Size()
		seq = r.Sequence + 1
		// A row ends at state.LastSeq. Beyond it a message could be stored between two answers,
		// and its successor too, so that the row would miss only the former.
		n := min(uint64(min(limit-len(ms), max(chunkBytes*len(ms)/max(size, 1), 1))), state.LastSeq+1-min(seq, state.LastSeq+1))
		if !loc.shared() && n > 1 {
			records, err := b.readAll(ctx, loc, sequences(seq, n))
			for i := range records {
				ms = append(ms, records[i].message(loc.topic))
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
func (a *api) resolve(ctx context.Context, loc *location, from backend.Start, state jetstream.StreamState) (uint64, error) {
	if after, ok := from.After(); ok {
		seq, err := parsePosition(after)
		return max(min(seq, state.LastSeq)+1, state.FirstSeq), err
	}
	at, ok := from.At()
	switch {
	case ok:
		return a.firstSince(ctx, loc, at, state)
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
func (a *api) firstSince(ctx context.Context, loc *location, t time.Time, state jetstream.StreamState) (uint64, error) {
	low, high := state.FirstSeq, state.LastSeq+1
	if t.After(state.LastTime) {
		return high, nil
	}
	if !t.After(state.FirstTime) {
		return low, nil
	}
	for low < high {
		middle := low + (high-low)/2
		m, err := a.readOne(ctx, loc, middle)
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
const chunkBytes = 1 << 20

// row returns n sequences that follow each other.
func sequences(first, n uint64) []uint64 {
	sequences := make([]uint64, n)
	for i := range sequences {
		sequences[i] = first + uint64(i)
	}
	return sequences
}

// readAll reads the messages of a stream that exist with these sequences, of any topic.
func (a *api) readAll(ctx context.Context, loc *location, sequences []uint64) ([]record, error) {
	questions := make([]any, len(sequences))
	for i, seq := range sequences {
		questions[i] = map[string]uint64{"seq": seq}
	}
	var errs []error
	records := make([]record, len(sequences))
	err := a.askAll(ctx, "STREAM.MSG.GET."+loc.stream, questions, func(i int, m *natsgo.Msg, err error) {
		answer := struct {
			Message *record `json:"message"`
		}{&records[i]}
		if err == nil {
			err = readAnswer(m, &answer)
		}
		if err != nil && !isCode(err, jetstream.JSErrCodeMessageNotFound) {
			errs = append(errs, err)
		}
		records[i].stream = loc.stream
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
func (a *api) readOne(ctx context.Context, loc *location, seq uint64) (*record, error) {
	var answer struct {
		Message record `json:"message"`
	}
	question := map[string]any{"seq": seq, "next_by_subj": loc.subject}
	err := a.ask(ctx, "STREAM.MSG.GET."+loc.stream, question, &answer)
	answer.Message.stream = loc.stream
	return &answer.Message, err
}
