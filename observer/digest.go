package observer

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A digest limits how many lines of a kind are written. It writes the first line of a kind
// immediately, and holds further lines. After an interval it writes the newest held line,
// with the number of held lines and their times. The first interval is 10 s, and each
// further one is twice as long, up to a minute. If it held no line in an interval, it
// forgets the kind, so that the next line is written immediately.
//
// A line has the time at which it is written. The times of held lines are attributes.
type digest struct {
	write func(slog.Record)

	mu     sync.Mutex
	kinds  map[kind]*series
	places map[place]*degraded // see outage.go
}

// A kind is the fields that lines of one kind have in common. Without a topic and a group
// it is a kind of the whole bus. It has no error text, because error texts of one kind may
// contain different addresses.
type kind struct{ name, class, topic, group string }

// A series has the lines of one kind.
type series struct {
	held        int
	events      int       // sum of line.events of the held lines
	newest      line      // the newest held line
	first, last time.Time // the times of the held lines
	every       time.Duration
	timer       *time.Timer
	outage      outage
}

const (
	digestFirst = 10 * time.Second
	digestMost  = time.Minute
	maxKinds    = 1000 // with more kinds at a time, further ones are told apart by their name only
)

// add writes l, or holds it if l is not the first line of the kind k.
func (d *digest) add(k kind, l line) {
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

// series returns the series of k, and whether it was known. The caller holds d.mu.
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

func (s *series) hold(l line) {
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

// summary returns the record that stands for the held lines of s, and holds them no longer.
// It returns false if s holds none.
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
	s.held, s.events, s.newest = 0, 0, line{}
	return r, true
}

// flush writes the held lines of each kind as at the end of an interval, and forgets all
// kinds.
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
	d.kinds, d.places = nil, nil
	d.mu.Unlock()
	for _, r := range records {
		d.writeSafely(r)
	}
}

// writeSafely writes r and recovers from a panic of the program's slog.Handler, because no
// Observer of Safe may be around the call.
func (d *digest) writeSafely(r slog.Record) {
	defer func() { _ = recover() }()
	d.write(r)
}
