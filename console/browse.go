package console

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/figures"
	"github.com/seed41896749/eventbus/internal/pages"
)

// The bounds of one request.
const (
	pageRows  = 25 // events of a page
	pageBytes = 2 << 20
	mostCalls = 150
	mostRead  = 5000 // events that a request reads
	mostBytes = 128 << 20
)

// A browser reads one topic for one request.
type browser struct {
	backend backend.Backend
	topic   string
	redact  figures.Redact
	timeout time.Duration
	left    pages.Bounds
}

func (c *console) browse(topic string) *browser {
	return &browser{c.backend, topic, c.redact, c.timeout, pages.Bounds{Calls: mostCalls, Events: mostRead, Bytes: mostBytes}}
}

func (b *browser) reader(from backend.Start) *pages.Reader {
	return &pages.Reader{Backend: b.backend, Topic: b.topic, From: from, Bounds: &b.left, Timeout: b.timeout}
}

// A stretch is a part of a topic: successive rows, oldest first.
type stretch struct {
	rows  []row
	bytes int
	full  bool // it has as many rows as it may have, and there may be more behind
}

// forward returns the rows from a place on: at most most, and fewer if they are large. It stops before
// the position until, unless that is empty. After pages.ErrSpent it returns the rows too.
func (b *browser) forward(ctx context.Context, from backend.Start, until string, most int) (s stretch, err error) {
	read := b.reader(from)
	for {
		ms, err := read.Next(ctx)
		if err != nil || len(ms) == 0 {
			return s, err
		}
		for i := range ms {
			m := &ms[i]
			if until != "" && m.Position >= until {
				return s, nil
			}
			if len(s.rows) >= most || s.bytes >= pageBytes {
				s.full = true
				return s, nil
			}
			s.rows = append(s.rows, newRow(b.redact, m, from))
			s.bytes += m.Size()
			from = backend.StartAfter(m.Position)
		}
	}
}

// newest returns the last rows before the position until, or before the end of the topic if that is
// empty. A backend reads only forward, so newest looks for a time from which on there are enough
// events, and not many more. more reports whether there are older rows. If the bounds do not allow
// to find it, the error is pages.ErrSpent.
func (b *browser) newest(ctx context.Context, until string) (rows []row, more bool, err error) {
	const most = 2 * pageRows
	last := func(s stretch) []row { return s.rows[max(len(s.rows)-pageRows, 0):] }
	s, err := b.forward(ctx, backend.StartEarliest, until, most)
	if err != nil || !s.full {
		return last(s), len(s.rows) > pageRows, err
	}
	now, err := backend.Now(ctx, b.backend, b.topic)
	if err != nil {
		return nil, false, err
	}
	longest := now.Sub(time.Unix(0, 0))
	since := func(age time.Duration) (stretch, error) {
		return b.forward(ctx, backend.StartAt(now.Add(-age)), until, most)
	}
	enough := func(s stretch) bool { return len(s.rows) >= pageRows || s.bytes >= pageBytes/2 }

	var best stretch // the rows of the last young milliseconds: not too many, perhaps too few
	young, old := time.Duration(0), time.Second
	for ; ; young, old = old, min(16*old, longest) {
		if s, err = since(old); err != nil {
			return last(best), true, spentUnless(err, best)
		}
		if s.full {
			break
		}
		if best = s; enough(s) || old == longest {
			return last(best), true, nil
		}
	}
	for old-young > time.Millisecond && !enough(best) {
		middle := young + (old-young)/2
		if s, err = since(middle); err != nil {
			return last(best), true, spentUnless(err, best)
		}
		if s.full {
			old = middle
		} else {
			young, best = middle, s
		}
	}
	if len(best.rows) == 0 {
		return b.endOf(ctx, backend.StartAt(now.Add(-old)), until)
	}
	return last(best), true, nil
}

// endOf returns the last rows before until by reading all events from a place on. It is for topics
// that have very many events of one moment.
func (b *browser) endOf(ctx context.Context, from backend.Start, until string) ([]row, bool, error) {
	var rows []row
	for {
		s, err := b.forward(ctx, from, until, pageRows)
		rows = append(rows, s.rows...)
		rows = rows[max(len(rows)-pageRows, 0):]
		if err != nil {
			return nil, true, err
		}
		if !s.full {
			return rows, true, nil
		}
		from = backend.StartAfter(rows[len(rows)-1].Position)
	}
}

// spentUnless returns nil if the bounds are reached and there are rows to show.
func spentUnless(err error, s stretch) error {
	if errors.Is(err, pages.ErrSpent) && len(s.rows) > 0 {
		return nil
	}
	return err
}
