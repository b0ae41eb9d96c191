package console

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A schedulePage is the page of the scheduled and recurring events of a topic.
type schedulePage struct {
	Topic    string
	Schedule *scheduleView // nil: Failure says why
	Failure  *failure
}

func (c *console) schedule(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	body, code := &schedulePage{Topic: topic}, http.StatusOK
	p, err := c.scheduleOf(r.Context(), topic)
	if body.Schedule = p; err != nil {
		var f failure
		code, f = failureOf(err)
		body.Schedule, body.Failure = nil, &f
	}
	c.render(w, r, code, "schedule", &page{Title: "Schedule of " + topic, Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// Link returns the URL of an event that waits.
func (p *schedulePage) Link(r scheduledEvent) string { return r.link(later.Topic(p.Topic)) }

// A scheduleScan is what requests have read of the scheduled and recurring events of one topic. Each
// request reads a bounded part of their log, and the next one continues. Once the whole log was read,
// requests only read new records.
type scheduleScan struct {
	scan *later.Scan
	rows map[string]eventRow // by position: the events that were shown last
}

// A scheduleView is the part of a schedule that a page shows.
type scheduleView struct {
	Next    []scheduledEvent // the events that are due next
	All     groupstats.Count
	Overdue groupstats.Count
	Partly  bool // the log has more records than were read
	Full    bool // because of a limit; otherwise the next request continues
	Entries []recurringEntry
	Further int // entries that are not shown
	Movers  groupstats.Stats
}

// A scheduledEvent is an event that waits for its time.
type scheduledEvent struct {
	eventRow
	Due       time.Time
	Recurring bool // a recurring entry has made it
}

// A recurringEntry describes a recurring entry.
type recurringEntry struct {
	ID, Type, Key     string
	Every, Cron, Zone string // either Every or Cron is set, or the entry is damaged
	Missed            string
	Max               int
	Paused            bool
	Next, Last        time.Time
}

const (
	maxEntries   = 100             // of a page
	overdueAfter = 5 * time.Second // an event that is due for so long is overdue
)

// scheduleOf reads the schedule of a topic.
func (r *reader) scheduleOf(ctx context.Context, topic string) (*scheduleView, error) {
	if err := later.Check(r.backend, topic); err != nil {
		return nil, err
	}
	return readShared(ctx, r, "schedule\x00"+topic, func(ctx context.Context) (p *scheduleView, err error) {
		err = r.schedules.use(ctx, topic, func(s *scheduleScan) error {
			log := later.Topic(topic)
			if err := s.update(ctx, r.openTopic(ctx, log), topic); err != nil {
				return err
			}
			p, err = s.view(ctx, r.openTopic(ctx, log), topic)
			return err
		})
		return p, err
	})
}

// update reads the part of the log that is new, as far as the bounds allow.
func (s *scheduleScan) update(ctx context.Context, tr *topicReader, topic string) error {
	began := time.Now()
	if s.scan == nil || s.scan.Old(began) {
		s.scan = later.NewScan(topic, began)
	}
	read := tr.pagesFrom(s.scan.From())
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

// view returns the current schedule.
func (s *scheduleScan) view(ctx context.Context, tr *topicReader, topic string) (*scheduleView, error) {
	now, err := tr.now(ctx, topic)
	if err != nil {
		return nil, err
	}
	events, all, overdue := s.scan.Pending(pageRows, now.Add(-overdueAfter))
	p := &scheduleView{All: groupstats.Count(all), Overdue: groupstats.Count(overdue), Partly: !s.scan.Whole(), Full: s.scan.Full(), Movers: tr.moverStats(ctx, topic)}
	rows := make(map[string]eventRow, len(events))
	for _, e := range events {
		from, position := e.Place()
		r, ok := s.rows[position]
		if !ok {
			if r, ok, err = tr.scheduledRow(ctx, e, topic); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue // it was removed since it was read
		}
		r.From, r.Position = from, position
		rows[position] = r
		p.Next = append(p.Next, scheduledEvent{r, e.Due, e.Entry != ""})
	}
	s.rows = rows
	for _, r := range s.scan.Entries() {
		if len(p.Entries) == maxEntries {
			p.Further++
			continue
		}
		p.Entries = append(p.Entries, tr.recurringEntry(r, topic))
	}
	return p, nil
}

// now returns the time of the broker, as far as it is known.
func (tr *topicReader) now(ctx context.Context, topic string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, tr.timeout)
	defer cancel()
	return later.NewClock(tr.backend, topic).Now(ctx)
}

// moverStats returns statistics of the processes that publish scheduled events.
func (tr *topicReader) moverStats(ctx context.Context, topic string) groupstats.Stats {
	ctx, cancel := context.WithTimeout(ctx, tr.timeout)
	defer cancel()
	stats, err := later.Movers(ctx, tr.backend, topic)
	switch {
	case errors.Is(err, backend.ErrGone):
		return groupstats.Stats{Told: true} // no process has ever published scheduled events of the topic
	case err != nil:
		return groupstats.Untold
	}
	return groupstats.StatsOf(stats)
}

// scheduledRow reads the record of an event. It returns false if the record is gone.
func (tr *topicReader) scheduledRow(ctx context.Context, e *later.Event, topic string) (r eventRow, ok bool, err error) {
	from, position := e.Place()
	m, err := tr.eventAt(ctx, from, position)
	switch {
	case errors.Is(err, backend.ErrGone):
		return r, false, nil
	case err != nil:
		return r, false, err
	}
	event := tr.redact.EventOf(e.As(topic, m))
	event.Position = position
	return eventRowOf(&event, from), true, nil
}

func (tr *topicReader) recurringEntry(r *later.Entry, topic string) recurringEntry {
	m := r.Event()
	m.Topic = topic
	event := tr.redact.EventOf(m)
	e := recurringEntry{
		ID: shorten(event.ID), Type: shorten(event.Type), Key: shorten(event.Key), Cron: shorten(r.Plan.Cron), Zone: shorten(r.Plan.Zone),
		Missed: shorten(string(r.Plan.Missed)), Max: r.Plan.Max, Paused: r.Plan.Paused, Next: r.Next(), Last: r.Last(),
	}
	if r.Plan.Every != 0 {
		e.Every = r.Plan.Every.String()
	}
	return e
}
