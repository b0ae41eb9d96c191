package publish

import "container/list"

// A droppable is a call that can be dropped while it waits (DropOldest). The lock of the
// admission guards its fields. Only the channel dropped may be awaited without the lock.
type droppable struct {
	size
	dropped chan struct{} // closed when the call is dropped
	place   *list.Element // in droppables.list; nil: it cannot be dropped now
	number  uint64        // calls that enter later have greater numbers
}

// lost returns a channel that is closed when the call is dropped; nil if t is nil.
func (t *droppable) lost() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.dropped
}

// droppables lists the calls that wait and are certainly not stored, the oldest first.
type droppables struct {
	list    list.List
	waiting size // the size of all calls in list
	entered uint64
}

// add appends a call of size s to the list. The admission has let this call enter. add
// returns the droppable of the call.
func (ts *droppables) add(s size) *droppable {
	ts.entered++
	t := &droppable{size: s, dropped: make(chan struct{}), number: ts.entered}
	t.place = ts.list.PushBack(t)
	ts.waiting = ts.waiting.plus(s)
	return t
}

// withdraw takes a call off the list, if it is there. It returns false if the call was
// dropped.
func (ts *droppables) withdraw(t *droppable) bool {
	if t.place != nil {
		ts.list.Remove(t.place)
		t.place, ts.waiting = nil, ts.waiting.minus(t.size)
	}
	return !t.isDropped()
}

func (t *droppable) isDropped() bool {
	select {
	case <-t.dropped:
		return true
	default:
		return false
	}
}

// resume puts a call back on the list after a try, before all calls that entered later.
// Only other tried calls can have entered earlier, so the search is short.
func (ts *droppables) resume(t *droppable) {
	if t.place != nil || t.isDropped() {
		return
	}
	later := ts.list.Front()
	for later != nil && later.Value.(*droppable).number < t.number {
		later = later.Next()
	}
	if t.place = ts.list.PushBack(t); later != nil {
		ts.list.MoveBefore(t.place, later)
	}
	ts.waiting = ts.waiting.plus(t.size)
}

// dropOldest drops the first call of the list. It returns the size of this call.
func (ts *droppables) dropOldest() size {
	t := ts.list.Front().Value.(*droppable)
	ts.withdraw(t)
	close(t.dropped)
	return t.size
}
