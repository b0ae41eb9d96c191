package console

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A schedule is the knowledge about the scheduled and recurring events of one topic. A request reads a
// bounded part of their log, and the next one goes on. When the log was read, requests read only new
// records.
type schedule struct {
	scan *later.Scan
	rows map[string]row // by position: the events that were shown last
}

// A plan is the part of a schedule that a page shows.
type plan struct {
	Next    []planned // the events that are due next
	All     groupstats.Count
	Overdue groupstats.Count
	Partly  bool // the log has more records than were read
	Full    bool // because of a bound; otherwise the next request goes on
	Entries []entry
	Further int // entries that are not shown
	Movers  groupstats.Stats
}

// A planned is an event that waits for its time.
type planned struct {
	row
	Due       time.Time
	Recurring bool // a recurring entry has made it
}

// An entry is a recurring entry.
type entry struct {
	ID, Type, Key     string
	Every, Cron, Zone string // either Every or Cron is set, or the entry is damaged
	Missed            string
	Max               int
	Paused            bool
	Next, Last        time.Time
}

const (
	mostEntries = 100             // of a page
	late        = 5 * time.Second // an event that is due for so long is overdue
)

// planOf reads the schedule of a topic.
func (r *readings) planOf(ctx context.Context, topic string) (*plan, error) {
	if err := later.Check(r.backend, topic); err != nil {
		return nil, err
	}
	return reading(ctx, r, "schedule\x00"+topic, func(ctx context.Context) (p *plan, err error) {
		err = r.schedules.use(ctx, topic, func(s *schedule) error {
			log := later.Topic(topic)
			if err := s.step(ctx, r.browse(ctx, log), topic); err != nil {
				return err
			}
			p, err = s.plan(ctx, r.browse(ctx, log), topic)
			return err
		})
		return p, err
	})
}

// step reads the part of the log that is new, as far as the bounds allow.
func (s *schedule) step(ctx context.Context, b *browser, topic string) error {
	began := time.Now()
	if s.scan == nil || s.scan.Old(began) {
		s.scan = later.NewScan(topic, began)
	}
	read := b.reader(s.scan.From())
	for !s.scan.Full() {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent):
			return nil
		case errors.Is(err, backend.ErrGone): // nothing was ever scheduled, or the log was deleted
			s.scan = later.NewScan(topic, began)
			s.scan.End(began)
			return nil
		case err != nil:
			return err
		case len(ms) == 0:
			s.scan.End(began)
			return nil
		}
		for i := range ms {
			s.scan.Add(&ms[i], began)
		}
	}
	return nil
}

// plan returns the present plan.
func (s *schedule) plan(ctx context.Context, b *browser, topic string) (*plan, error) {
	now, err := b.now(ctx, topic)
	if err != nil {
		return nil, err
	}
	events, all, overdue := s.scan.Pending(pageRows, now.Add(-late))
	p := &plan{All: groupstats.Count(all), Overdue: groupstats.Count(overdue), Partly: !s.scan.Whole(), Full: s.scan.Full(), Movers: b.movers(ctx, topic)}
	rows := make(map[string]row, len(events))
	for _, e := range events {
		from, position := e.Place()
		r, ok := s.rows[position]
		if !ok {
			if r, ok, err = b.scheduled(ctx, e, topic); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue // it was removed since it was read
		}
		r.From, r.Position = from, position
		rows[position] = r
		p.Next = append(p.Next, planned{r, e.Due, e.Entry != ""})
	}
	s.rows = rows
	for _, r := range s.scan.Entries() {
		if len(p.Entries) == mostEntries {
			p.Further++
			continue
		}
		p.Entries = append(p.Entries, b.entry(r, topic))
	}
	return p, nil
}

// now returns the time of the broker, as far as it is known.
func (b *browser) now(ctx context.Context, topic string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return later.NewClock(b.backend, topic).Now(ctx)
}

// movers returns the figures of the processes that publish scheduled events.
func (b *browser) movers(ctx context.Context, topic string) groupstats.Stats {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	stats, err := later.Movers(ctx, b.backend, topic)
	switch {
	case errors.Is(err, backend.ErrGone):
		return groupstats.Stats{Told: true} // no process has ever published scheduled events of the topic
	case err != nil:
		return groupstats.Untold
	}
	return groupstats.StatsOf(stats)
}

// scheduled reads the record of an event. It returns false if the record is gone.
func (b *browser) scheduled(ctx context.Context, e *later.Event, topic string) (r row, ok bool, err error) {
	from, position := e.Place()
	m, err := b.at(ctx, from, position)
	switch {
	case errors.Is(err, backend.ErrGone):
		return r, false, nil
	case err != nil:
		return r, false, err
	}
	event := b.redact.EventOf(e.As(topic, m))
	event.Position = position
	return rowOf(&event, from), true, nil
}

func (b *browser) entry(r *later.Entry, topic string) entry {
	m := r.Event()
	m.Topic = topic
	event := b.redact.EventOf(m)
	e := entry{
		ID: short(event.ID), Type: short(event.Type), Key: short(event.Key), Cron: short(r.Plan.Cron), Zone: short(r.Plan.Zone),
		Missed: short(string(r.Plan.Missed)), Max: r.Plan.Max, Paused: r.Plan.Paused, Next: r.Next(), Last: r.Last(),
	}
	if r.Plan.Every != 0 {
		e.Every = r.Plan.Every.String()
	}
	return e
}
