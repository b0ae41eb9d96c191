package engine

import "slices"

// A queue is first in, first out.
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
