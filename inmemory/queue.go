package inmemory

// A queue has what a group handed out and has not settled: entries that wait for
// their moment, and entries that are due, by offset.
//
// Nearly all are leased, for the same time and one after another, so each is due
// after those before it: they are in a list, which costs the same however long it
// is. The others that wait are in a heap.
type queue struct {
	front, back *entry // of the list
	listed      int    // in the list
	waiting     heap   // by due moment
	due         heap   // by offset
}

func (q *queue) len() int { return q.listed + len(q.waiting) + len(q.due) }

// first returns the entry that will be due first, or nil.
func (q *queue) first() *entry {
	if len(q.waiting) > 0 && (q.front == nil || q.waiting[0].before(q.front)) {
		return q.waiting[0]
	}
	return q.front
}

// next returns when something is due: at once, at the moment of the first that
// waits, or never.
func (q *queue) next() moment {
	if len(q.due) > 0 {
		return 0
	}
	if e := q.first(); e != nil {
		return e.due
	}
	return never
}

// take takes out the lowest offsets of all that is due by now, at most limit.
func (q *queue) take(limit int, now moment) (taken []*entry) {
	for e := q.first(); e != nil && e.due <= now; e = q.first() {
		q.remove(e)
		e.isDue = true
		q.due.push(e)
	}
	for len(taken) < limit && len(q.due) > 0 {
		taken = append(taken, q.due[0])
		q.remove(q.due[0])
	}
	return taken
}

// lease takes in an entry that is due at the end of a lease.
func (q *queue) lease(e *entry, due moment) {
	e.due = due
	if q.back != nil && e.before(q.back) {
		q.delay(e, due)
		return
	}
	q.listed++
	e.index, e.prev, e.next = inList, q.back, nil
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
	e.due = due
	q.waiting.push(e)
}

// remove takes e out.
func (q *queue) remove(e *entry) {
	switch {
	case e.isDue:
		q.due.remove(e)
		e.isDue = false
		return
	case e.index != inList:
		q.waiting.remove(e)
		return
	}
	q.listed--
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
