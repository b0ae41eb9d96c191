package observer

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A digest limits how many lines of a kind are logged, so that an outage does not flood the log. It
// writes the first line of a kind immediately and holds back further ones. After an interval it
// writes the newest of them, with their number and their times. The first interval is 10 s, and
// each further one is twice as long, up to a minute. After an interval without lines the kind is
// forgotten, so the next line is again written immediately.
//
// A line's own time is when it is written; the times of held lines are attributes.
type digest struct {
	write func(slog.Record)

	mu     sync.Mutex
	kinds  map[kind]*series
	groups map[groupName]*degraded // see outage.go
}

// A kind is what lines of one kind have in common. Without a topic and a group, it is a kind of the
// whole bus. Error texts are not part of it, because those of one kind may contain different
// addresses.
type kind struct{ name, class, topic, group string }

// A series holds the lines of one kind.
type series struct {
	held        int
	events      int       // sum of line.events of the held lines
	newest      logLine   // the newest held line
	first, last time.Time // the times of the held lines
	every       time.Duration
	timer       *time.Timer
	outage      outage
}

const (
	digestFirst = 10 * time.Second
	digestMost  = time.Minute
	maxKinds    = 1000 // beyond this many kinds at a time, further ones are distinguished by name only
)

// add writes l if it is the first line of the kind k, and holds it otherwise.
func (d *digest) add(k kind, l logLine) {
	d.mu.Lock()
	s, known := d.series(k)
	s.outage.failures++
	if known {
		s.hold(l)
	}
	d.mu.Unlock()
	if !known {
		d.write(l.record())
	}
}

// series returns the series of k, and whether it existed. The caller holds d.mu.
func (d *digest) series(k kind) (s *series, known bool) {
	if s, known = d.kinds[k]; known {
		return s, true
	}
	if len(d.kinds) >= maxKinds {
		k = kind{name: k.name}
		if s, known = d.kinds[k]; known {
			return s, true
		}
	}
	if d.kinds == nil {
		d.kinds = map[kind]*series{}
	}
	s = &series{every: digestFirst}
	s.timer = time.AfterFunc(s.every, func() { d.tick(k, s) })
	d.kinds[k] = s
	return s, false
}

func (s *series) hold(l logLine) {
	if s.held == 0 {
		s.first = l.at
	}
	s.held++
	s.events += l.events
	s.newest, s.last = l, l.at
}

// tick ends an interval of s, the series of k.
func (d *digest) tick(k kind, s *series) {
	d.mu.Lock()
	if d.kinds[k] != s {
		d.mu.Unlock()
		return
	}
	r, some := s.summary()
	if some || s.outage.open() {
		s.every = min(2*s.every, digestMost)
		s.outage.ended = false
		s.timer.Reset(s.every)
	} else {
		delete(d.kinds, k)
	}
	d.mu.Unlock()
	if some {
		d.writeSafely(r)
	}
}

// summary returns the record that stands for the held lines of s, and releases them. some is false
// if there are none.
func (s *series) summary() (r slog.Record, some bool) {
	if s.held == 0 {
		return r, false
	}
	l := s.newest
	if s.events > 0 {
		l.events = s.events
	}
	r = l.record(slog.Int("repeated", s.held), slog.Time("first", s.first), slog.Time("last", s.last))
	if s.outage.open() {
		r.AddAttrs(slog.Time("since", s.outage.began), slog.Int("degraded", s.outage.degraded))
	}
	s.held, s.events, s.newest = 0, 0, logLine{}
	return r, true
}

// flush writes the held lines of each kind, as at the end of an interval, and forgets all kinds.
func (d *digest) flush() {
	d.mu.Lock()
	var held []*series
	for _, s := range d.kinds {
		s.timer.Stop()
		if s.held > 0 {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b *series) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	records := make([]slog.Record, len(held))
	for i, s := range held {
		records[i], _ = s.summary()
	}
	d.kinds, d.groups = nil, nil
	d.mu.Unlock()
	for _, r := range records {
		d.writeSafely(r)
	}
}

// writeSafely writes r and recovers from a panic of the program's slog.Handler, because timers and
// flush may run without an Observer of Safe around them.
func (d *digest) writeSafely(r slog.Record) {
	defer func() { _ = recover() }()
	d.write(r)
}
