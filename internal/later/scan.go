package later

import (
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A Scan is the state of a log, for a page that shows it. The caller reads the log, in pages of its
// own, from the beginning on, and adds each record. A Scan keeps no payloads. Its methods have one
// caller at a time.
//
// A Scan is good as long as the caller reads on. It is too old, like a View, if it was not whole for a
// minute: the records of decisions may be missing in the rest of the log.
type Scan struct {
	view  *View
	fresh time.Time // when the last reading to the end began, or the first reading
	whole bool      // the log was read to its end
	size  int       // bytes of all records without their payloads
}

// The bounds of a Scan.
const (
	mostScanned     = 20_000 // events and entries
	mostScannedSize = 32 << 20
)

// NewScan returns a Scan of the log of a topic, whose reading begins at the time now.
func NewScan(topic string, now time.Time) *Scan {
	s := &Scan{view: NewView(nil, topic), fresh: now}
	s.view.bare = true
	return s
}

// Old reports whether the caller has to begin anew at the time now.
func (s *Scan) Old(now time.Time) bool { return isStale(s.fresh, now) }

// Full reports whether a bound is reached, so that the caller reads no further.
func (s *Scan) Full() bool {
	return len(s.view.places)+len(s.view.entries) >= mostScanned || s.size >= mostScannedSize
}

// Whole reports whether the log was read to its end.
func (s *Scan) Whole() bool { return s.whole }

// From returns where the next page of the log begins.
func (s *Scan) From() backend.Start { return backend.StartAfter(s.view.read) }

// Add adds the next record, which was read at the time now.
func (s *Scan) Add(record *backend.Message, now time.Time) {
	m := *record
	if kind(m.Headers.Get(kindName)) == isEntry {
		m.Payload = nil // the template of the entry would keep it
	}
	s.whole = false
	s.size += m.Size() - len(m.Payload)
	s.view.apply(&m, now)
}

// End says that a reading which began at a time has reached the end of the log.
func (s *Scan) End(began time.Time) {
	s.whole, s.fresh = true, began
	s.view.forgetOld(began)
}

// Pending returns at most most of the events that wait, in the order in which they are due. It returns
// the number of all of them too, and of the ones that are due before a time.
func (s *Scan) Pending(most int, before time.Time) (events []*Event, all, overdue int) {
	events = slices.SortedFunc(slices.Values(s.view.queue.events), compareDue)
	for overdue < len(events) && events[overdue].Due.Before(before) {
		overdue++
	}
	return events[:min(most, len(events))], len(events), overdue
}

// Entries returns the recurring entries, sorted by ID. Their events have no payload.
func (s *Scan) Entries() []*Entry { return s.view.Entries() }

// Place returns a place before the record of e, and its position.
func (e *Event) Place() (before backend.Start, position string) {
	return backend.StartAfter(e.before), e.position
}

// As returns the message that record, the record of e, will be in a topic.
func (e *Event) As(topic string, record *backend.Message) *backend.Message {
	one := Event{ID: e.ID, Due: e.Due, Entry: e.Entry, position: e.position, message: record}
	return one.Message(topic, e.Due, false)
}
