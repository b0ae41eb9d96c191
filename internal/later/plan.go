package later

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
)

// A Plan says when a recurring entry makes events. Either Every or Cron is set.
type Plan struct {
	Every  time.Duration `json:"every,omitempty"`
	Cron   string        `json:"cron,omitempty"` // five fields, or a descriptor such as @daily
	Zone   string        `json:"zone,omitempty"` // of Cron; empty: UTC
	Missed Missed        `json:"missed"`
	Max    int           `json:"max,omitempty"` // the most firings that FireAll makes up for
	Paused bool          `json:"paused,omitempty"`
	Since  time.Time     `json:"since"` // the entry has no firing before this time
	Print  string        `json:"print"` // a digest of the event, as the program gave it
}

func (p Plan) since(t time.Time) Plan {
	p.Since = t
	return p
}

// Missed says which of the firings happen that are due when the next one is due too.
type Missed string

// The values of Missed.
const (
	FireOnce Missed = "once" // one firing stands for all missed ones
	FireNone Missed = "none" // none
	FireAll  Missed = "all"  // all, at most Max, the latest
)

// least is the least time between two firings.
const least = time.Second

// Check returns the first mistake in p, or nil.
func (p *Plan) Check() error {
	_, err := p.times()
	return err
}

// A timetable has the times of firings. The zero time from Next means that there is none.
type timetable interface{ Next(time.Time) time.Time }

type interval struct {
	every time.Duration
	since time.Time
}

// Next returns the first time after t that is a whole number of intervals after since.
func (i interval) Next(t time.Time) time.Time {
	if t.Before(i.since) {
		return i.since.Add(i.every)
	}
	return i.since.Add((t.Sub(i.since)/i.every + 1) * i.every)
}

func (p *Plan) times() (timetable, error) {
	switch {
	case p.Every != 0 && p.Cron != "":
		return nil, errors.New("has both Every and Cron")
	case p.Every != 0 && p.Zone != "":
		return nil, errors.New("has a Zone without Cron")
	case p.Every >= least:
		return interval{p.Every, p.Since}, nil
	case p.Every != 0:
		return nil, fmt.Errorf("has Every %v, want at least %v", p.Every, least)
	case p.Cron == "":
		return nil, errors.New("has neither Every nor Cron")
	case strings.Contains(p.Cron, "TZ="):
		return nil, errors.New("has a time zone in Cron, want it in Zone")
	}
	zone, err := time.LoadLocation(p.Zone)
	if err != nil {
		return nil, fmt.Errorf("has the Zone %q: %w", p.Zone, err)
	}
	s, err := cron.ParseStandard(p.Cron)
	if err != nil {
		return nil, fmt.Errorf("has the Cron %q: %w", p.Cron, err)
	}
	return zoned{s, zone, everyHour(p.Cron)}, nil
}

// everyHour reports whether a cron specification has no fixed hours.
func everyHour(spec string) bool {
	fields := strings.Fields(spec)
	return len(fields) == 1 && fields[0] == "@hourly" || len(fields) > 1 && strings.Contains(fields[1], "*")
}

// A zoned is a timetable by the clock of a time zone.
type zoned struct {
	schedule  cron.Schedule
	zone      *time.Location
	everyHour bool
}

// Next returns the first time after t. When the clock is set back, a time of a fixed hour
// comes twice, and only the first one counts.
func (z zoned) Next(t time.Time) time.Time {
	next := z.schedule.Next(t.In(z.zone))
	for !z.everyHour && !next.IsZero() && isRepeated(next) {
		next = z.schedule.Next(next)
	}
	return next
}

// isRepeated reports whether the clock of the zone of t has shown the same time before.
func isRepeated(t time.Time) bool {
	for back := 30 * time.Minute; back <= 2*time.Hour; back += 30 * time.Minute {
		if t.Add(-back).Format(time.DateTime) == t.Format(time.DateTime) {
			return true
		}
	}
	return false
}

// An Entry is one version of a recurring entry.
type Entry struct {
	ID   string
	Plan Plan

	position string
	template *backend.Message // the record
	times    timetable        // nil if the plan is wrong
	last     time.Time        // when the latest event is due that the entry has made
	pending  []*Event
	moved    time.Time // when the latest of its events was due that was moved, as far as was read
}

// Event returns the message from which the events of r are made.
func (r *Entry) Event() *backend.Message {
	e := &Event{message: r.template}
	m := e.Message(r.template.Topic, time.Time{}, false)
	m.Headers.Del(planName)
	return m
}

// EntryRecord returns the record of a version of an entry that makes copies of m.
func EntryRecord(m *backend.Message, id string, p Plan, ttl time.Duration) (*backend.Message, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	r := *m
	Schedule(&r, time.Time{}, ttl)
	r.ID = id
	r.Headers.Set(kindName, string(isEntry))
	r.Headers.Del(dueName)
	r.Headers.Set(planName, string(plan))
	return &r, nil
}

// with returns the record of a version of r with another plan.
func (r *Entry) with(p Plan) (*backend.Message, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	m := *r.template
	m.Position, m.Headers = "", slices.Clone(m.Headers)
	m.Headers.Set(planName, string(plan))
	return &m, nil
}

func readEntry(m *backend.Message) *Entry {
	r := &Entry{ID: strings.Clone(m.ID), position: strings.Clone(m.Position), template: clone(m)}
	if json.Unmarshal([]byte(m.Headers.Get(planName)), &r.Plan) != nil {
		return r
	}
	r.times, _ = r.Plan.times()
	return r
}

// first returns when the first event of r is due; zero: never.
func (r *Entry) first() time.Time {
	if r.times == nil || r.Plan.Paused {
		return time.Time{}
	}
	return r.times.Next(r.Plan.Since)
}

// after returns when the event is due that follows the one due at a time, and whether the
// latter is published at all. now is the present time.
func (r *Entry) after(due, now time.Time) (next time.Time, fires bool) {
	next = r.times.Next(due)
	if next.IsZero() || next.After(now) {
		return next, true
	}
	switch r.Plan.Missed { // due was missed, because the following one is due too
	case FireNone:
		return r.times.Next(now), false
	case FireAll:
		missed := []time.Time{due} // the latest Max
		for t := next; !t.IsZero() && !t.After(now); t = r.times.Next(t) {
			if missed = append(missed, t); len(missed) > max(r.Plan.Max, 1) {
				missed = missed[1:]
			}
		}
		if missed[0].After(due) {
			return missed[0], false
		}
		return next, true
	}
	return r.times.Next(now), true
}

// record returns the record of the event of r that is due at a time.
func (r *Entry) record(due time.Time) *backend.Message {
	m := *r.template
	m.Position, m.Headers = "", make(backend.Headers, 0, len(r.template.Headers)+3)
	for _, h := range r.template.Headers {
		if h.Name != planName {
			m.Headers = append(m.Headers, h)
		}
	}
	m.ID = r.ID + "/" + due.UTC().Format(time.RFC3339)
	m.Headers.Set(kindName, string(isEvent))
	m.Headers.Set(dueName, due.UTC().Format(time.RFC3339Nano))
	m.Headers.Set(entryName, r.ID)
	m.Headers.Set(madeName, r.position)
	m.Headers.Set(cloudevent.Time, due.UTC().Format(time.RFC3339Nano))
	return &m
}
