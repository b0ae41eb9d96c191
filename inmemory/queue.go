package inmemory

// A queue keeps entries in the order they are due; of those due at the same
// moment the lower offset goes first.
//
// Nearly all are leased, for the same time and one after another, so each is due
// after those before it: they are in a list, which costs the same however long it
// is. The others are in a heap.
type queue struct {
	front, back *entry // of the list
	heap        heap
	len         int // of both
}

// first returns the entry that is due first, or nil.
func (q *queue) first() *entry {
	if len(q.heap) > 0 && (q.front == nil || q.heap[0].before(q.front)) {
		return q.heap[0]
	}
	return q.front
}

// lease takes in an entry that is due at the end of a lease.
func (q *queue) lease(e *entry, due moment) {
	e.due = due
	if q.back != nil && e.before(q.back) {
		q.delay(e, due)
		return
	}
	q.len++
	e.index, e.prev, e.next = listed, q.back, nil
	if q.back != nil {
		q.back.next = e
	} else {
		q.front = e
	}
	q.back = e
}

// delay takes in an entry that is due at any moment. In the list a long delay
// would keep the leases that follow it out.
func (q *queue) delay(e *entry, due moment) {
	q.len++
	e.due = due
	q.heap.push(e)
}

// remove takes e out.
func (q *queue) remove(e *entry) {
	q.len--
	if e.index != listed {
		q.heap.remove(e)
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.front = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.back = e.prev
	}
}
