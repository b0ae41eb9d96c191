package engine

import (
	"math/rand/v2"
	"slices"
)

// A line has the Holds that a worker may start, in the order of receipt. It keeps suspects
// apart, see [Policy.suspect], and starts one of them at a time.
type line struct {
	queue
	suspects []*Hold
	suspect  *Hold // the suspect that runs; nil: none
}

func (l *line) add(h *Hold, suspect bool) {
	if suspect {
		l.suspects = append(l.suspects, h)
		return
	}
	l.push(h)
}

// startable reports whether a worker may start a Hold.
func (l *line) startable() bool {
	return l.len() > 0 || l.suspect == nil && len(l.suspects) > 0
}

// pick takes the next Hold to start. If a suspect and another Hold may start, pick chooses
// between them at random, with equal chances.
func (l *line) pick() *Hold {
	if l.suspect == nil && len(l.suspects) > 0 && (l.len() == 0 || rand.IntN(2) == 0) {
		i := rand.IntN(len(l.suspects))
		l.suspect = l.suspects[i]
		l.suspects = slices.Delete(l.suspects, i, i+1)
		return l.suspect
	}
	return l.pop()
}

// ended notes that the running suspect has ended, so that another one may start. It does
// nothing if h is not the running suspect.
func (l *line) ended(h *Hold) {
	if l.suspect == h {
		l.suspect = nil
	}
}

// drop removes h, so that no worker starts it.
func (l *line) drop(h *Hold) {
	l.remove(h)
	l.suspects = slices.DeleteFunc(l.suspects, func(s *Hold) bool { return s == h })
}

// A queue of Holds is first in, first out.
type queue struct {
	items []*Hold
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) first() *Hold { return q.items[q.head] }

func (q *queue) push(h *Hold) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, h)
}

func (q *queue) pop() *Hold {
	h := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return h
}

func (q *queue) remove(h *Hold) {
	if i := slices.Index(q.items[q.head:], h); i >= 0 {
		q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	}
}
