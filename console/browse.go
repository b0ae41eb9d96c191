package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/pages"
)

// The bounds of one request.
const (
	pageRows      = 25 // events of a page
	maxReadCalls  = 150
	maxReadEvents = 5000 // events that a request reads
	maxReadBytes  = 128 << 20
	lastPage      = readTimeout / 4 // the time that is left when the last page begins

	// stepBytes is about the most that one step of the search for the newest events reads, so that there
	// can be many steps.
	stepBytes = maxReadBytes / 32
)

// A topicReader reads one topic for one request, within the bounds of a request.
type topicReader struct {
	backend backend.Backend
	topic   string
	redact  groupstats.Redact
	timeout time.Duration
	left    pages.Bounds
}

// openTopic returns a reader of a topic that stops reading shortly before the deadline of ctx.
func (r *reader) openTopic(ctx context.Context, topic string) *topicReader {
	left := pages.Bounds{Calls: maxReadCalls, Events: maxReadEvents, Bytes: maxReadBytes}
	if end, ok := ctx.Deadline(); ok {
		left.Until = end.Add(-lastPage)
	}
	return &topicReader{r.backend, topic, r.redact, r.timeout, left}
}

func (tr *topicReader) pagesFrom(from backend.Start) *pages.Reader {
	return &pages.Reader{Backend: tr.backend, Topic: tr.topic, From: from, Bounds: &tr.left, Timeout: tr.timeout}
}

// A segment is a run of successive rows of a topic, oldest first.
type segment struct {
	rows  []eventRow
	bytes int64 // of their events
	full  bool  // it has as many rows or bytes as were asked for or allowed, and there are more behind
}

// enough reports whether there are want rows, or so many bytes that fewer make a page.
func (s *segment) enough(want int) bool { return len(s.rows) >= want || s.bytes >= stepBytes/2 }

func (s *segment) last(n int) []eventRow { return s.rows[max(len(s.rows)-n, 0):] }

// readForward returns up to limit rows starting at from, fewer once their events reach the
// given number of bytes. It stops before the position until, unless that is empty.
func (tr *topicReader) readForward(ctx context.Context, from backend.Start, until string, limit int, bytes int64) (s segment, err error) {
	read := tr.pagesFrom(from)
	for {
		ms, err := read.Next(ctx, limit+1-len(s.rows))
		if err != nil || len(ms) == 0 {
			s.full = errors.Is(err, pages.ErrSpent)
			return s, err
		}
		for i := range ms {
			if until != "" && ms[i].Position >= until {
				return s, nil
			}
			if len(s.rows) == limit || s.bytes >= bytes {
				s.full = true
				return s, nil
			}
			s.bytes += int64(ms[i].Size())
			s.rows = append(s.rows, newEventRow(tr.redact, &ms[i], from))
			from = backend.StartAfter(ms[i].Position)
		}
	}
}

// newest returns the last want rows before the position until, or before the end of the topic if that is
// empty. A backend reads only forward, so newest searches for a time after which there are enough
// events, but not many more. more reports whether there may be older rows. If the bounds do not allow it
// to find the rows, the error is [pages.ErrSpent].
func (tr *topicReader) newest(ctx context.Context, until string, want int) (rows []eventRow, more bool, err error) {
	now, err := backend.Now(ctx, tr.backend, tr.topic)
	if err != nil {
		return nil, false, err
	}
	longest := now.Sub(time.Unix(0, 0))
	since := func(age time.Duration) (segment, error) {
		return tr.readForward(ctx, backend.StartAt(now.Add(-age)), until, 2*want, stepBytes)
	}

	var best, s segment // best are the rows of the last time young: not too many, perhaps too few
	young, old := time.Duration(0), time.Second
	for ; ; young, old = old, min(16*old, longest) {
		if s, err = since(old); err != nil {
			return best.last(want), true, ignoreSpent(err, best)
		}
		if s.full {
			break
		}
		if best = s; best.enough(want) || old == longest {
			return best.last(want), old < longest || len(best.rows) > want, nil
		}
	}
	for old-young > time.Microsecond && !best.enough(want) {
		middle := young + (old-young)/2
		if s, err = since(middle); err != nil {
			return best.last(want), true, ignoreSpent(err, best)
		}
		if s.full {
			old = middle
		} else {
			young, best = middle, s
		}
	}
	if len(best.rows) > 0 {
		return best.last(want), true, nil
	}
	rows, err = tr.lastRows(ctx, backend.StartAt(now.Add(-old)), until, want)
	return rows, true, err
}

// lastRows returns the last want rows before until by reading all events starting at from. It is for
// topics in which very many events have the same time.
func (tr *topicReader) lastRows(ctx context.Context, from backend.Start, until string, want int) (rows []eventRow, err error) {
	read := tr.pagesFrom(from)
	for {
		ms, err := read.Next(ctx, pages.MostPage)
		if err != nil {
			return nil, err
		}
		for i := range ms {
			if until != "" && ms[i].Position >= until {
				return rows, nil
			}
			rows = append(rows[max(len(rows)+1-want, 0):], newEventRow(tr.redact, &ms[i], from))
			from = backend.StartAfter(ms[i].Position)
		}
		if len(ms) == 0 {
			return rows, nil
		}
	}
}

// ignoreSpent returns nil if the bounds are reached and there are rows to show.
func ignoreSpent(err error, s segment) error {
	if errors.Is(err, pages.ErrSpent) && len(s.rows) > 0 {
		return nil
	}
	return err
}

// An eventRow is an event in a list. It keeps neither the payload nor other memory of the message.
type eventRow struct {
	Position string
	From     backend.Start // a start that is after the previous event and not after this one
	ID       string
	Type     string
	Key      string
	Time     time.Time
	Source   string
	Size     int // bytes of the payload
	Preview  string
	Reason   string // of a dead letter
	Group    string // of a dead letter
	Error    string // of a dead letter
}

func newEventRow(redact groupstats.Redact, m *backend.Message, from backend.Start) eventRow {
	e := redact.EventOf(m)
	return eventRowOf(&e, from)
}

func eventRowOf(e *eventbus.Event, from backend.Start) eventRow {
	r := eventRow{
		Position: strings.Clone(e.Position), From: from, ID: strings.Clone(e.ID), Type: shorten(e.Type), Key: strings.Clone(e.Key),
		Time: e.Time, Source: shorten(e.Source), Size: len(e.Payload), Preview: preview(e.Payload),
	}
	if why, ok := eventbus.DeadLetterOf(e); ok {
		r.ID, r.Reason, r.Group, r.Error = strings.Clone(why.ID), shorten(why.Reason), shorten(why.Group), shorten(why.Error)
	}
	return r
}

func preview(payload []byte) string {
	if !isText(payload) {
		return "(binary)"
	}
	return shorten(string(payload[:min(len(payload), 4*maxShortText)]))
}

// eventAt returns the message at a position. It is soon after from, or anywhere if from is the beginning.
func (tr *topicReader) eventAt(ctx context.Context, from backend.Start, position string) (*backend.Message, error) {
	read := tr.pagesFrom(from)
	for range 3 { // the event is the first one, if nobody has changed the link
		ms, err := read.Next(ctx, 1)
		if err != nil {
			return nil, err
		}
		for i := range ms {
			switch {
			case ms[i].Position == position:
				return &ms[i], nil
			case ms[i].Position > position:
				return nil, fmt.Errorf("event at %s: %w", position, backend.ErrGone)
			}
		}
		if len(ms) == 0 {
			break
		}
	}
	if from == backend.StartEarliest {
		return read.At(ctx, position)
	}
	return nil, fmt.Errorf("event at %s: %w", position, backend.ErrGone)
}
