package wait

import "slices"

// A Queue admits callers in the order in which they joined it. Its owner decides when the first one
// may proceed, so that a caller that asks for a lot isn't overtaken forever by callers that ask for
// little. The zero Queue is empty. Its methods must be called under the owner's lock.
type Queue[Request, Grant any] struct{ waiting []*Waiter[Request, Grant] }

// A Waiter is a caller in a Queue.
type Waiter[Request, Grant any] struct {
	Request Request
	Granted chan Grant // gets one value when the caller may proceed
}

// Len returns how many callers are waiting.
func (q *Queue[Request, Grant]) Len() int { return len(q.waiting) }

// Join adds a caller with a request. The caller then waits for Granted, without holding the lock.
func (q *Queue[Request, Grant]) Join(r Request) *Waiter[Request, Grant] {
	w := &Waiter[Request, Grant]{Request: r, Granted: make(chan Grant, 1)}
	q.waiting = append(q.waiting, w)
	return w
}

// Leave removes a caller that no longer waits. It returns false if w has been admitted in the
// meantime. In that case Granted has a value, which the caller must use or return.
func (q *Queue[Request, Grant]) Leave(w *Waiter[Request, Grant]) bool {
	i := slices.Index(q.waiting, w)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// Admit lets the first callers proceed, one after another, until grant refuses one.
func (q *Queue[Request, Grant]) Admit(grant func(Request) (Grant, bool)) {
	for len(q.waiting) > 0 {
		g, ok := grant(q.waiting[0].Request)
		if !ok {
			return
		}
		q.waiting[0].Granted <- g
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}
