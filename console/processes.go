package console

import (
	"context"
	"net/http"
	"slices"

	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// A processesPage is the page of the processes that announce themselves.
type processesPage struct {
	Processes []presence.Process
	More      int // processes that are not shown
	Failure   *failure
}

const mostProcesses = 200

func (c *console) processes(w http.ResponseWriter, r *http.Request) {
	body, code := &processesPage{}, http.StatusOK
	all, err := c.announced(r.Context())
	if err != nil {
		var f failure
		code, f = failureOf(err)
		body.Failure = &f
	}
	body.More = max(len(all)-mostProcesses, 0)
	body.Processes = all[:len(all)-body.More]
	c.render(w, r, code, "processes", &page{Title: "Processes", Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// announced returns the processes that have a note on the broker.
func (r *readings) announced(ctx context.Context) ([]presence.Process, error) {
	return reading(ctx, r, "processes", func(ctx context.Context) ([]presence.Process, error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		return presence.Processes(ctx, r.backend)
	})
}

// members are the members of a group that announce themselves, and their settings.
type members struct {
	Rows     []memberRow
	More     int // members that are not shown
	LeftOut  int // subscriptions that are not in the notes of their processes
	Failing  failingEvents
	Differ   []presence.Setting // settings in which the members differ
	Settings []presence.Setting // settings in which they agree
	Failure  *failure
}

// A memberRow is one subscription of a process.
type memberRow struct {
	presence.Process
	Member presence.Subscription
}

// failingEvents wait for another attempt in members that are not silent, the next attempt first.
type failingEvents struct {
	Rows     []failingEvent
	More     int  // events that are not shown
	Buries   bool // the visitor may bury an event
	Redacted bool // the rows have neither ID nor key nor error, see Options.Redact
}

// A failingEvent waits for another attempt in a member.
type failingEvent struct {
	presence.Event
	Process string
	Buried  bool // it was made a dead letter, and its member has not noticed yet
	group   string
}

const mostFailing = 50

// URL returns the URL of the event.
func (e *failingEvent) URL() string { return placeURL(e.Topic, e.Position) }

// BuryURL returns the URL of the page that asks before the event is buried.
func (e *failingEvent) BuryURL() string { return buryURL(e.Topic, e.group, e.Position) }

// add adds the events of topic that fail in the subscription s of p.
func (f *failingEvents) add(p *presence.Process, s *presence.Subscription, topic string) {
	if p.Silent {
		return
	}
	for _, e := range s.Events {
		if f.Redacted {
			e.ID, e.Key, e.Error = "", "", ""
		}
		of, _, parts := partition.Cut(e.Topic)
		if e.Topic == topic || parts && of == topic {
			f.Rows = append(f.Rows, failingEvent{Event: e, Process: p.Name, group: s.Group})
		}
	}
}

// bury notes which events were made dead letters by jobs.
func (f *failingEvents) bury(js *jobs) {
	for i := range f.Rows {
		e := &f.Rows[i]
		e.Buried = js.buried(e.Topic, e.group, e.Position)
	}
}

// end sorts the rows, and leaves out the ones that are too many.
func (f *failingEvents) end() {
	slices.SortStableFunc(f.Rows, func(a, b failingEvent) int { return a.Due.Compare(b.Due) })
	f.More = max(len(f.Rows)-mostFailing, 0)
	f.Rows = f.Rows[:len(f.Rows)-f.More]
}

// membersOf returns the members of a group that announce themselves. It reads only if the figures know of
// notes.
func (r *readings) membersOf(ctx context.Context, s *groupstats.Snapshot, topic, group string) *members {
	if !s.Announced {
		return &members{}
	}
	all, err := r.announced(ctx)
	if err != nil {
		_, f := failureOf(err)
		return &members{Failure: &f}
	}
	m := &members{Failing: failingEvents{Redacted: r.redact != nil}}
	var compared []presence.Process
	for _, p := range all {
		var own []presence.Subscription
		for _, s := range p.Subscriptions {
			if s.Group == group && s.Reads(topic) {
				m.Rows = append(m.Rows, memberRow{p, s})
				m.Failing.add(&p, &s, topic)
				s.Topic = topic // members with a pattern are members too
				own = append(own, s)
			}
		}
		p.Subscriptions = own
		m.LeftOut += p.More
		compared = append(compared, p)
	}
	m.Failing.end()
	if m.More = max(len(m.Rows)-mostProcesses, 0); m.More > 0 {
		m.Rows = m.Rows[:mostProcesses]
	}
	for _, s := range presence.Compare(compared) {
		if s.Differs() {
			m.Differ = append(m.Differ, s)
		} else {
			m.Settings = append(m.Settings, s)
		}
	}
	return m
}
