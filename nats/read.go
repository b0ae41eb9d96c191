package nats

import (
	"cmp"
	"context"
	"fmt"
	"math"
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

// Read implements [backend.Reader]. A message of another program that cannot be decoded has its
// raw bytes as Payload.
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
	if err != nil || limit <= 0 || seq > state.LastSeq {
		return nil, err
	}
	first, err := b.readOne(ctx, loc, seq)
	if isCode(err, jetstream.JSErrCodeMessageNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ms := []backend.Message{first.message(loc.topic)}
	size, seq := ms[0].Size(), first.Sequence+1
	span := uint64(0) // how many sequences the next step covers
	for len(ms) < limit && seq <= state.LastSeq {
		want := min(limit-len(ms), max(chunkBytes*len(ms)/max(size, 1), 1))
		if span == 0 {
			span = uint64(want)
		}
		// No span goes beyond state.LastSeq. There a message could be stored between two answers,
		// and its successor too, so that the span would miss only the former.
		records, next, err := b.readSpan(ctx, loc, seq, min(seq+span-1, state.LastSeq), want)
		if err != nil {
			return ms, err
		}
		for i := range records[:min(len(records), limit-len(ms))] {
			ms = append(ms, records[i].message(loc.topic))
			size += ms[len(ms)-1].Size()
		}
		seq = next
		switch { // messages of other topics and removed ones may lie between
		case len(records) < want/2:
			span = min(4*span, maxSpan)
		case len(records) > 2*want:
			span /= 4
		}
	}
	return ms, nil
}

// A window is a range of sequences of a stream, both ends included.
type window struct{ first, last uint64 }

// readSpan reads the messages of a topic with sequences from first to last. next is a later
// sequence, before which the topic has no further message.
//
// Each message costs one request for "the first message of the topic from this sequence on",
// and one after another would take as many round trips as there are messages. Instead, up to
// parallel requests go out together, one for each window of the span. A window that has
// returned a message continues behind it, cut into smaller ones. A span therefore needs few
// round trips, wherever in it the messages are.
func (a *api) readSpan(ctx context.Context, loc *location, first, last uint64, parallel int) (found []record, next uint64, err error) {
	next = last + 1
	for open := []window{{first, last}}; len(open) > 0; {
		open = split(open, min(parallel, maxParallel))
		records, err := a.readNext(ctx, loc, open)
		if err != nil {
			return nil, 0, err
		}
		var rest []window
		empty := first // the topic has no message from the end of the last window to before it
		for i, w := range open {
			if w.last < empty {
				continue
			}
			switch seq := records[i].Sequence; {
			case seq == 0: // no message follows
				empty = math.MaxUint64
			case seq > w.last:
				empty = seq
			default:
				found = append(found, records[i])
				if seq < w.last {
					rest = append(rest, window{seq + 1, w.last})
				}
			}
			if empty > last {
				next = max(next, empty)
				break
			}
		}
		open = rest
	}
	slices.SortFunc(found, func(a, b record) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return found, next, nil
}

// split cuts windows into about n, of about the same length. It never joins two.
func split(windows []window, n int) (all []window) {
	length := uint64(0)
	for _, w := range windows {
		length += w.last - w.first + 1
	}
	step := max(length/uint64(max(n, 1)), 1)
	for _, w := range windows {
		for ; w.last-w.first >= step; w.first += step {
			all = append(all, window{w.first, w.first + step - 1})
		}
		all = append(all, w)
	}
	return all
}

// readNext reads, for each window, the first message of a topic from its first sequence on. The
// message may be beyond the window. If there is none, the record is zero.
func (a *api) readNext(ctx context.Context, loc *location, windows []window) ([]record, error) {
	questions := make([]any, len(windows))
	for i, w := range windows {
		questions[i] = nextQuestion(loc, w.first)
	}
	return a.readRecords(ctx, loc, questions)
}

// nextQuestion asks for the first message of a topic with the sequence seq or a higher one.
func nextQuestion(loc *location, seq uint64) any {
	return map[string]any{"seq": seq, "next_by_subj": loc.subject}
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

// firstSince returns the sequence that separates the messages of a topic stored before t from
// the ones stored at t or later. It is a binary search: about 30 requests in a stream of a
// billion messages.
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

const (
	chunkBytes = 1 << 20 // about the most bytes of the messages that one step of Read asks for
	maxSpan    = 1 << 20 // most sequences of one step
)

// readAll reads the messages of a stream that exist with these sequences, of any topic.
func (a *api) readAll(ctx context.Context, loc *location, sequences []uint64) ([]record, error) {
	questions := make([]any, len(sequences))
	for i, seq := range sequences {
		questions[i] = map[string]uint64{"seq": seq}
	}
	records, err := a.readRecords(ctx, loc, questions)
	return slices.DeleteFunc(records, func(r record) bool { return r.Sequence == 0 }), err
}

// readRecords asks for one message with each question. The record of a message that does not
// exist is zero.
func (a *api) readRecords(ctx context.Context, loc *location, questions []any) ([]record, error) {
	var errs []error
	records := make([]record, len(questions))
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
	return records, nil
}

// A record is a stored message as the API returns it.
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

// readOne asks the leader of a stream for the first message of a topic with the sequence seq or
// a higher one. The record is never nil.
func (a *api) readOne(ctx context.Context, loc *location, seq uint64) (*record, error) {
	var answer struct {
		Message record `json:"message"`
	}
	err := a.ask(ctx, "STREAM.MSG.GET."+loc.stream, nextQuestion(loc, seq), &answer)
	answer.Message.stream = loc.stream
	return &answer.Message, err
}
