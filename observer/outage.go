package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// An outage is the time in which subscriptions are degraded for one cause. It ends when the
// last of them runs again. The end is written as one line, which says how long it lasted.
type outage struct {
	began    time.Time // when the first subscription became degraded
	failures int       // failures of the kind since then, and earlier ones that were not told
	degraded int       // subscriptions that are degraded now
	most     int       // the largest degraded so far
	ended    bool      // the end of an outage was written in this interval
}

func (o *outage) open() bool { return o.degraded > 0 }

// A place names a group by its topic and its name.
type place struct{ topic, group string }

// degraded has the kind of the outage at a place, and how many subscriptions it concerns.
type degraded struct {
	kind          kind
	subscriptions int
}

// degrade records that a subscription at p became degraded, for the cause k. The line l of it
// is written if no line of the cause was written before.
func (d *digest) degrade(k kind, p place, l line) {
	d.mu.Lock()
	s, known := d.series(k)
	o := &s.outage
	if !o.open() {
		*o = outage{began: l.at, failures: max(1, s.held), ended: o.ended}
	}
	o.degraded++
	o.most = max(o.most, o.degraded)
	if d.places == nil {
		d.places = map[place]*degraded{}
	}
	if d.places[p] == nil {
		d.places[p] = &degraded{kind: k}
	}
	d.places[p].subscriptions++
	d.mu.Unlock()
	if !known {
		d.write(l.record())
	}
}

// leave records that a subscription at p is degraded no longer. If it runs again, and was the
// last one of its outage, the end of the outage is written. It returns false if nothing is
// known of an outage at p.
func (d *digest) leave(p place, runs bool, at time.Time) (known bool) {
	d.mu.Lock()
	l, some, known := d.left(p, runs, at)
	d.mu.Unlock()
	if some {
		d.write(l.record())
	}
	return known
}

// left is leave with the lock. It returns the line to write, if there is one.
func (d *digest) left(p place, runs bool, at time.Time) (l line, some, known bool) {
	here := d.places[p]
	if here == nil {
		return l, false, false
	}
	if here.subscriptions--; here.subscriptions == 0 {
		delete(d.places, p)
	}
	s := d.kinds[here.kind]
	if s == nil {
		return l, false, true
	}
	o := &s.outage
	if o.degraded--; o.open() || !runs {
		return l, false, true
	}
	l = o.end(p, at)
	if o.ended { // the broker comes and goes: one line in an interval is enough
		s.hold(l)
		return l, false, true
	}
	o.ended = true
	s.held, s.events, s.newest = 0, 0, line{} // the end tells their number
	s.every = digestFirst
	s.timer.Reset(s.every)
	return l, true, true
}

// end returns the line for the end of o.
func (o *outage) end(p place, at time.Time) line {
	l := line{level: slog.LevelWarn, message: "subscriptions run again", at: at, pairs: []any{
		"since", o.began, "lasted", at.Sub(o.began), "failures", o.failures, "subscriptions", o.most,
	}}
	if o.most == 1 {
		l.message, l.about = "subscription running", About{Topic: p.topic, Group: p.group}
	}
	return l
}

// forgetOutages forgets which subscriptions are degraded, because changes of states may be
// missing.
func (d *digest) forgetOutages() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.places = nil
	for _, s := range d.kinds {
		s.outage = outage{}
	}
}

// unreachable is the cause of errors that come from a broker that does not answer.
const unreachable = "unreachable"

// causeOf returns the cause of a failed call to the backend, or "" if err has no class.
func causeOf(err error) string {
	class := backend.Class(err)
	switch {
	case errors.Is(class, backend.ErrUnavailable), errors.Is(class, backend.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return unreachable
	case class != nil:
		return class.Error()
	}
	return ""
}
