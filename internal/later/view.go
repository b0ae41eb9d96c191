package later

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A View is the state of a log, as far as it was read. Its methods have one caller at a time.
//
// A View learns of published events by their moves, and not by their removal. So a Mover keeps
// each record of a decision for the time grace, and a View that has not read for half of this
// time forgets everything and reads the whole log again.
type View struct {
	backend backend.Backend
	topic   string // the topic of the events, not the log

	read  string    // position of the last record that was read
	fresh time.Time // when the last complete reading began; zero: nothing is known
	page  int       // records of the next Read

	ids     map[string]*Event // by key: the events that are pending
	places  map[string]*Event // by position: the events that are pending or moved
	queue   queue             // the pending events
	moved   []*Event          // events that are decided, in the order of the log, until they are forgotten
	entries map[string]*Entry // by ID: the recurring entries

	spent    []string          // positions of records that were replaced or cancelled; to be removed before all others
	verdicts []verdict         // the records of decisions, oldest first
	results  map[string]result // by position: the results of cancel records
	cached   int               // bytes of the messages that pending events have
	bare     bool              // no event keeps its message
}

const (
	grace = 2 * time.Minute // how long the record of a decision stays in the log

	firstPage = 64
	pageBytes = 4 << 20 // about the most bytes of one Read
	mostPage  = 1000

	soon       = time.Minute // an event that is due so soon keeps its message in memory
	cacheBytes = 64 << 20    // the most bytes of these messages
)

// A verdict is the record of a decision.
type verdict struct {
	position string
	seen     time.Time
}

// A result says for each ID of a cancel record whether its event will never be published.
type result map[string]bool

// NewView returns a View of the log of a topic. It has read nothing.
func NewView(b backend.Backend, topic string) *View {
	v := &View{backend: b, topic: topic}
	v.reset()
	return v
}

func (v *View) reset() {
	*v = View{
		backend: v.backend, topic: v.topic, page: firstPage, bare: v.bare,
		ids: map[string]*Event{}, places: map[string]*Event{}, entries: map[string]*Entry{}, results: map[string]result{},
	}
}

// Empty reports whether the log has nothing that a Mover would have to do.
func (v *View) Empty() bool {
	return len(v.places) == 0 && len(v.entries) == 0 && len(v.spent) == 0 && len(v.verdicts) == 0
}

// isStale reports whether a View that was read at the time fresh is read anew at the time now.
func isStale(fresh, now time.Time) bool { return now.Sub(fresh) > grace/2 }

// Refresh reads the log to its end.
func (v *View) Refresh(ctx context.Context) error { return v.refresh(ctx, "\xff") }

// errUnread means that a record which was stored is not in the log.
var errUnread = errors.New("a record that was stored is missing in the log")

// RefreshTo reads the log up to the record at a position.
func (v *View) RefreshTo(ctx context.Context, position string) error {
	if err := v.refresh(ctx, position); err != nil {
		return err
	}
	if v.read < position {
		return errUnread
	}
	return nil
}

func (v *View) refresh(ctx context.Context, until string) error {
	began := time.Now()
	if isStale(v.fresh, began) {
		v.reset()
	}
	for v.read < until {
		ms, err := backend.Read(ctx, v.backend, Topic(v.topic), backend.StartAfter(v.read), v.page)
		if errors.Is(err, backend.ErrGone) {
			v.reset()
			break
		}
		if err != nil {
			return err
		}
		if len(ms) == 0 {
			break
		}
		size := 0
		for i := range ms {
			size += ms[i].Size()
			v.apply(&ms[i], began)
		}
		v.page = min(max(pageBytes/max(size/len(ms), 1), 1), mostPage)
	}
	v.fresh = began
	return nil
}

// apply adds a record to the state.
func (v *View) apply(m *backend.Message, now time.Time) {
	before := v.read
	v.read = strings.Clone(m.Position)
	switch kind(m.Headers.Get(kindName)) {
	case isEvent:
		v.schedule(readEvent(m, before), m, now)
	case isMove:
		v.verdicts = append(v.verdicts, verdict{v.read, now})
		for _, position := range listed(m) {
			if e := v.places[position]; e != nil && !e.moved {
				v.move(e)
				e.by, e.decided = v.read, now
			}
		}
	case isCancel:
		v.verdicts = append(v.verdicts, verdict{v.read, now})
		v.results[v.read] = v.cancel(listed(m))
	case isEntry:
		v.enter(readEntry(m))
	case isForget:
		v.verdicts = append(v.verdicts, verdict{v.read, now})
		for _, id := range listed(m) {
			v.forget(id)
		}
	default: // a record of another program, or of a later version: it stays
	}
}

// schedule adds an event, which replaces the pending event of its ID.
func (v *View) schedule(e *Event, m *backend.Message, now time.Time) {
	if e.Entry != "" {
		r := v.entries[e.Entry]
		if r == nil || r.position != e.made || !e.Due.After(r.last) {
			v.spent = append(v.spent, e.position)
			return
		}
		r.last, r.pending = e.Due, append(r.pending, e)
	} else if old := v.ids[e.ID]; old != nil {
		v.drop(old)
	}
	if e.Entry == "" {
		v.ids[e.ID] = e
	}
	v.places[e.position] = e
	v.queue.add(e)
	if e.Due.Before(now.Add(soon)) {
		v.keep(e, m)
	}
}

// keep keeps the message of a pending event in memory, if there is room.
func (v *View) keep(e *Event, m *backend.Message) {
	if !v.bare && e.message == nil && v.cached+m.Size() <= cacheBytes {
		e.message = clone(m)
		v.cached += m.Size()
	}
}

// leave makes e no longer pending.
func (v *View) leave(e *Event) {
	v.queue.remove(e)
	if v.ids[e.ID] == e {
		delete(v.ids, e.ID)
	}
	if r := v.entries[e.Entry]; r != nil {
		r.pending = slices.DeleteFunc(r.pending, func(p *Event) bool { return p == e })
	}
	if e.message != nil {
		v.cached -= e.message.Size()
	}
}

// move makes e no longer cancellable.
func (v *View) move(e *Event) {
	v.leave(e)
	e.moved = true
	v.moved = append(v.moved, e)
	if r := v.entries[e.Entry]; r != nil && e.Due.After(r.moved) {
		r.moved = e.Due
	}
}

// revert makes e pending again, which certainly was not published. The Mover tries again at
// the time at.
func (v *View) revert(e *Event, at time.Time) {
	v.moved = slices.DeleteFunc(v.moved, func(m *Event) bool { return m == e })
	if newer := v.ids[e.ID]; e.Entry == "" && newer != nil {
		delete(v.places, e.position)
		v.spent = append(v.spent, e.position)
		return
	}
	e.moved, e.by, e.at = false, "", at
	if r := v.entries[e.Entry]; r != nil {
		r.pending = append(r.pending, e)
	} else {
		v.ids[e.ID] = e
	}
	v.queue.add(e)
	if e.message != nil {
		v.cached += e.message.Size()
	}
}

// drop makes e spent: it is never published.
func (v *View) drop(e *Event) {
	v.leave(e)
	e.message = nil
	delete(v.places, e.position)
	v.spent = append(v.spent, e.position)
}

// cancel drops the pending events of IDs. An event is certainly never published if it was
// pending and no other event of its ID is about to be published.
func (v *View) cancel(ids []string) result {
	r := make(result, len(ids))
	for _, id := range ids {
		e := v.ids[id]
		if e == nil {
			continue
		}
		v.drop(e)
		r[id] = !slices.ContainsFunc(v.moved, func(m *Event) bool { return m.ID == id && m.Entry == "" })
	}
	return r
}

// Pending reports whether an event of this ID is pending.
func (v *View) Pending(id string) bool { return v.ids[id] != nil }

// Cancelled returns the result of the cancel record at a position, once.
func (v *View) Cancelled(position string) (r result, ok bool) {
	r, ok = v.results[position]
	delete(v.results, position)
	return r, ok
}

// enter adds an entry, which replaces the entry of its ID.
func (v *View) enter(r *Entry) {
	if r == nil {
		return
	}
	if before := v.entries[r.ID]; before != nil {
		r.moved = before.moved
	}
	v.forget(r.ID)
	v.entries[r.ID] = r
}

func (v *View) forget(id string) {
	r := v.entries[id]
	if r == nil {
		return
	}
	for _, e := range slices.Clone(r.pending) {
		v.drop(e)
	}
	delete(v.entries, id)
	v.spent = append(v.spent, r.position)
}

// published forgets events that were published, and returns their positions.
func (v *View) published(events []*Event) (positions []string) {
	for _, e := range events {
		delete(v.places, e.position)
		positions = append(positions, e.position)
	}
	v.moved = slices.DeleteFunc(v.moved, func(m *Event) bool { return v.places[m.position] != m })
	return positions
}

// forgetOld is for a View without a Mover. It forgets the decisions that are older than grace,
// and the records to remove.
func (v *View) forgetOld(now time.Time) {
	old := func(t time.Time) bool { return now.Sub(t) > grace }
	v.spent = nil
	v.verdicts = slices.DeleteFunc(v.verdicts, func(d verdict) bool {
		if old(d.seen) {
			delete(v.results, d.position)
		}
		return old(d.seen)
	})
	v.moved = slices.DeleteFunc(v.moved, func(e *Event) bool {
		if old(e.decided) {
			delete(v.places, e.position)
		}
		return old(e.decided)
	})
}

// expired returns the records of decisions that are older than grace at the time now, and that
// no event needs which is still to be published.
func (v *View) expired(now time.Time) (positions []string) {
	for _, d := range v.verdicts {
		if now.Sub(d.seen) < grace || slices.ContainsFunc(v.moved, func(e *Event) bool { return e.by <= d.position }) {
			break
		}
		positions = append(positions, d.position)
	}
	return positions
}
