package console

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/pages"
)

// The bounds of one request.
const (
	pageRows  = 25 // events of a page
	mostCalls = 150
	mostRead  = 5000 // events that a request reads
	mostBytes = 128 << 20
	lastPage  = readTime / 4 // the time that is left when the last page begins

	// stepBytes is about the most that one step of the search for the newest events reads, so that there
	// can be many steps.
	stepBytes = mostBytes / 32
)

// A browser reads one topic for one request.
type browser struct {
	backend backend.Backend
	topic   string
	redact  groupstats.Redact
	timeout time.Duration
	left    pages.Bounds
}

// browse returns a browser of a topic, whose time ends soon before the deadline of ctx.
func (r *readings) browse(ctx context.Context, topic string) *browser {
	left := pages.Bounds{Calls: mostCalls, Events: mostRead, Bytes: mostBytes}
	if end, ok := ctx.Deadline(); ok {
		left.Until = end.Add(-lastPage)
	}
	return &browser{r.backend, topic, r.redact, r.timeout, left}
}

func (b *browser) reader(from backend.Start) *pages.Reader {
	return &pages.Reader{Backend: b.backend, Topic: b.topic, From: from, Bounds: &b.left, Timeout: b.timeout}
}

// A stretch is a part of a topic: successive rows, oldest first.
type stretch struct {
	rows  []row
	bytes int64 // of their events
	full  bool  // it has as many rows or bytes as were asked for or allowed, and there are more behind
}

// enough reports whether there are want rows, or so many bytes that fewer make a page.
func (s *stretch) enough(want int) bool { return len(s.rows) >= want || s.bytes >= stepBytes/2 }

func (s *stretch) last(n int) []row { return s.rows[max(len(s.rows)-n, 0):] }

// forward returns at most most rows from a place on, and no further one when their events have so many
// bytes. It stops before the position until, unless that is empty.
func (b *browser) forward(ctx context.Context, from backend.Start, until string, most int, bytes int64) (s stretch, err error) {
	read := b.reader(from)
	for {
		ms, err := read.Next(ctx, most+1-len(s.rows))
		if err != nil || len(ms) == 0 {
			s.full = errors.Is(err, pages.ErrSpent)
			return s, err
		}
		for i := range ms {
			if until != "" && ms[i].Position >= until {
				return s, nil
			}
			if len(s.rows) == most || s.bytes >= bytes {
				s.full = true
				return s, nil
			}
			s.bytes += int64(ms[i].Size())
			s.rows = append(s.rows, newRow(b.redact, &ms[i], from))
			from = backend.StartAfter(ms[i].Position)
		}
	}
}

// newest returns the last want rows before the position until, or before the end of the topic if that is
// empty. A backend reads only forward, so newest looks for a time from which on there are enough
// events, and not many more. more reports whether there may be older rows. If the bounds do not
// allow to find the rows, the error is [pages.ErrSpent].
func (b *browser) newest(ctx context.Context, until string, want int) (rows []row, more bool, err error) {
	now, err := backend.Now(ctx, b.backend, b.topic)
	if err != nil {
		return nil, false, err
	}
	longest := now.Sub(time.Unix(0, 0))
	since := func(age time.Duration) (stretch, error) {
		return b.forward(ctx, backend.StartAt(now.Add(-age)), until, 2*want, stepBytes)
	}

	var best, s stretch // best are the rows of the last time young: not too many, perhaps too few
	young, old := time.Duration(0), time.Second
	for ; ; young, old = old, min(16*old, longest) {
		if s, err = since(old); err != nil {
			return best.last(want), true, spentUnless(err, best)
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
			return best.last(want), true, spentUnless(err, best)
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
	rows, err = b.endOf(ctx, backend.StartAt(now.Add(-old)), until, want)
	return rows, true, err
}

// endOf returns the last want rows before until by reading all events from a place on. It is for topics
// that have very many events of one moment.
func (b *browser) endOf(ctx context.Context, from backend.Start, until string, want int) (rows []row, err error) {
	read := b.reader(from)
	for {
		ms, err := read.Next(ctx, pages.MostPage)
		if err != nil {
			return nil, err
		}
		for i := range ms {
			if until != "" && ms[i].Position >= until {
				return rows, nil
			}
			rows = append(rows[max(len(rows)+1-want, 0):], newRow(b.redact, &ms[i], from))
			from = backend.StartAfter(ms[i].Position)
		}
		if len(ms) == 0 {
			return rows, nil
		}
	}
}

// spentUnless returns nil if the bounds are reached and there are rows to show.
func spentUnless(err error, s stretch) error {
	if errors.Is(err, pages.ErrSpent) && len(s.rows) > 0 {
		return nil
	}
	return err
}
