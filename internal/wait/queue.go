package wait

import "slices"

// A Queue admits callers in the order in which they joined it. Its owner decides when the first one
// may go on, so that a caller that asks for much is not overtaken for ever by callers that ask for
// little. The zero Queue is empty. The owner's lock guards its methods.
type Queue[Request, Grant any] struct{ waiting []*Waiter[Request, Grant] }

// A Waiter is a caller in a Queue.
type Waiter[Request, Grant any] struct {
	Request Request
	Granted chan Grant // gets one value when the caller may go on
}

// Len returns how many callers wait.
func (q *Queue[Request, Grant]) Len() int { return len(q.waiting) }

// Join adds a caller with a request. It then waits, without the lock, for Granted.
func (q *Queue[Request, Grant]) Join(r Request) *Waiter[Request, Grant] {
	w := &Waiter[Request, Grant]{Request: r, Granted: make(chan Grant, 1)}
	q.waiting = append(q.waiting, w)
	return w
}

// Leave removes a caller that no longer waits. It returns false if w was admitted meanwhile: then
// Granted has a value, which the caller has to use or to return.
func (q *Queue[Request, Grant]) Leave(w *Waiter[Request, Grant]) bool {
	i := slices.Index(q.waiting, w)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// Admit lets the first callers go on, one after another, until grant refuses one.
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
