package observer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// An outage is the time during which subscriptions are degraded for one cause. It ends when the
// last of them runs again, which is logged as one line that says how long it lasted.
type outage struct {
	began    time.Time // when the first subscription became degraded
	failures int       // failures of the kind since then, and earlier ones that were not logged
	degraded int       // subscriptions that are currently degraded
	most     int       // the largest value of degraded so far
	ended    bool      // the end of an outage was logged in this interval
}

func (o *outage) open() bool { return o.degraded > 0 }

// A groupName names a group of a topic.
type groupName struct{ topic, group string }

// degraded says which outage affects a group, and how many of its subscriptions.
type degraded struct {
	kind          kind
	subscriptions int
}

// degrade records that a subscription of the group g became degraded for the cause k. It writes l
// if no line of that cause was written before.
func (d *digest) degrade(k kind, g groupName, l logLine) {
	d.mu.Lock()
	s, known := d.series(k)
	o := &s.outage
	if !o.open() {
		*o = outage{began: l.at, failures: max(1, s.held), ended: o.ended}
	}
	o.degraded++
	o.most = max(o.most, o.degraded)
	if d.groups == nil {
		d.groups = map[groupName]*degraded{}
	}
	if d.groups[g] == nil {
		d.groups[g] = &degraded{kind: k}
	}
	d.groups[g].subscriptions++
	d.mu.Unlock()
	if !known {
		d.write(l.record())
	}
}

// leave records that a subscription of the group g is no longer degraded. If it runs again and was
// the last one of its outage, the end of the outage is written. known is false if no outage of the
// group is known.
func (d *digest) leave(g groupName, runs bool, at time.Time) (known bool) {
	d.mu.Lock()
	l, some, known := d.left(g, runs, at)
	d.mu.Unlock()
	if some {
		d.write(l.record())
	}
	return known
}

// left implements leave with the lock held. It returns the line to write, if there is one.
func (d *digest) left(g groupName, runs bool, at time.Time) (l logLine, some, known bool) {
	here := d.groups[g]
	if here == nil {
		return l, false, false
	}
	if here.subscriptions--; here.subscriptions == 0 {
		delete(d.groups, g)
	}
	s := d.kinds[here.kind]
	if s == nil {
		return l, false, true
	}
	o := &s.outage
	if o.degraded--; o.open() || !runs {
		return l, false, true
	}
	l = o.end(g, at)
	if o.ended { // the broker comes and goes, so one line per interval is enough
		s.hold(l)
		return l, false, true
	}
	o.ended = true
	s.held, s.events, s.newest = 0, 0, logLine{} // the line about the end includes their number
	s.every = digestFirst
	s.timer.Reset(s.every)
	return l, true, true
}

// end returns the line for the end of o.
func (o *outage) end(g groupName, at time.Time) logLine {
	l := logLine{level: slog.LevelWarn, message: "subscriptions run again", at: at, pairs: []any{
		"since", o.began, "lasted", at.Sub(o.began), "failures", o.failures, "subscriptions", o.most,
	}}
	if o.most == 1 {
		l.message, l.about = "subscription running", About{Topic: g.topic, Group: g.group}
	}
	return l
}

// forgetOutages forgets which subscriptions are degraded, because changes of state may have been
// dropped.
func (d *digest) forgetOutages() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.groups = nil
	for _, s := range d.kinds {
		s.outage = outage{}
	}
}

// unreachable is the cause of all errors that mean that the broker does not answer.
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
