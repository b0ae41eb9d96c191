package publish

import "container/list"

// A ticket is the right of a call to be stored, with DropOldest. The call loses it if it is
// dropped. The lock of the admission guards all but the channel.
type ticket struct {
	size
	dropped chan struct{} // closed when the call is dropped
	place   *list.Element // in the list of calls that may be dropped; nil: it may not
}

// lost returns a channel that is closed when the call is dropped; nil without a ticket.
func (t *ticket) lost() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.dropped
}

// tickets lists the calls that wait and are certainly not stored, the oldest first.
type tickets struct {
	list    list.List
	waiting size // of the list
}

// issue returns the ticket of a call that has come in.
func (ts *tickets) issue(s size) *ticket {
	t := &ticket{size: s, dropped: make(chan struct{})}
	t.place = ts.list.PushBack(t)
	ts.waiting = ts.waiting.plus(s)
	return t
}

// withdraw takes the call off the list. It returns false if the call was dropped.
func (ts *tickets) withdraw(t *ticket) bool {
	if t.place != nil {
		ts.list.Remove(t.place)
		t.place, ts.waiting = nil, ts.waiting.minus(t.size)
	}
	return !t.isDropped()
}

func (t *ticket) isDropped() bool {
	select {
	case <-t.dropped:
		return true
	default:
		return false
	}
}

// resume puts a call that was tried back on the list, before the calls that were not.
func (ts *tickets) resume(t *ticket) {
	if t.place != nil || t.isDropped() {
		return
	}
	t.place = ts.list.PushFront(t)
	ts.waiting = ts.waiting.plus(t.size)
}

// dropOldest drops the first call of the list, and returns its size.
func (ts *tickets) dropOldest() size {
	t := ts.list.Front().Value.(*ticket)
	ts.withdraw(t)
	close(t.dropped)
	return t.size
}
