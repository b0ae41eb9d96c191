package later

import (
	"bytes"
	"container/heap"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// An Event is an event in a log, with or without its message.
type Event struct {
	ID    string
	Due   time.Time
	Entry string // the ID of the recurring entry that made it; empty: none

	position string    // of its record
	before   string    // position of a record before it
	made     string    // position of the entry's version that made it
	at       time.Time // when it is to be published: Due, or later after a refusal
	moved    bool      // it can no longer be cancelled
	by       string    // position of the record that moved it
	decided  time.Time // when that record was read
	message  *backend.Message
	index    int // in the queue
}

func readEvent(m *backend.Message, before string) *Event {
	due, _ := time.Parse(time.RFC3339Nano, m.Headers.Get(dueName)) // a damaged event is due at once
	return &Event{
		ID: strings.Clone(m.ID), Due: due, Entry: strings.Clone(m.Headers.Get(entryName)),
		at: due, position: strings.Clone(m.Position), before: before, made: strings.Clone(m.Headers.Get(madeName)),
	}
}

// Message returns the message that stores the event in its topic, if it is published at the
// time now. The message of e must be in memory. With once, a second copy is a duplicate.
func (e *Event) Message(topic string, now time.Time, once bool) *backend.Message {
	m := *e.message
	m.Topic, m.Position, m.Headers = topic, "", make(backend.Headers, 0, len(e.message.Headers))
	ttl, mark := time.Duration(0), "later/"+e.position
	for _, h := range e.message.Headers {
		switch h.Name {
		case ttlName:
			n, _ := strconv.ParseInt(h.Value, 10, 64)
			ttl = time.Duration(n)
		case onceName:
			mark = h.Value
		case kindName, dueName, entryName, madeName:
		default:
			m.Headers = append(m.Headers, h)
		}
	}
	if ttl > 0 {
		m.Headers.Set(letter.Expiry, now.Add(ttl).UTC().Format(time.RFC3339Nano))
	}
	if e.Entry != "" {
		mark = "later/" + e.ID
	}
	m.Once, m.OnceKey = once, mark
	return &m
}

// clone returns a copy of m that shares no memory with other messages of a Read.
func clone(m *backend.Message) *backend.Message {
	c := *m
	c.Topic, c.ID, c.Key, c.Position = strings.Clone(m.Topic), strings.Clone(m.ID), strings.Clone(m.Key), strings.Clone(m.Position)
	c.Payload = bytes.Clone(m.Payload)
	c.Headers = make(backend.Headers, len(m.Headers))
	for i, h := range m.Headers {
		c.Headers[i] = backend.Header{Name: strings.Clone(h.Name), Value: strings.Clone(h.Value)}
	}
	return &c
}

// A queue has events in the order in which they are due. Events that are due at the same time
// have the order of the log.
type queue struct{ events heapOfEvents }

func (q *queue) add(e *Event) { heap.Push(&q.events, e) }

func (q *queue) remove(e *Event) {
	if i := e.index; i < len(q.events) && q.events[i] == e {
		heap.Remove(&q.events, i)
	}
}

// next returns the event that is due first, or nil.
func (q *queue) next() *Event {
	if len(q.events) == 0 {
		return nil
	}
	return q.events[0]
}

// due returns at most limit events that are due at the time now, in their order. They stay in
// the queue.
func (q *queue) due(now time.Time, limit int) (events []*Event) {
	for len(events) < limit && len(q.events) > 0 && !q.events[0].at.After(now) {
		events = append(events, heap.Pop(&q.events).(*Event))
	}
	for _, e := range events {
		q.add(e)
	}
	return events
}

func compareDue(a, b *Event) int {
	if c := a.Due.Compare(b.Due); c != 0 {
		return c
	}
	return strings.Compare(a.position, b.position)
}

type heapOfEvents []*Event

func (h heapOfEvents) Len() int { return len(h) }
func (h heapOfEvents) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return compareDue(h[i], h[j]) < 0
}

func (h heapOfEvents) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *heapOfEvents) Push(x any) {
	e := x.(*Event)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *heapOfEvents) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
