package ledger

import "slices"

// A class of Holds has its own limit on how many of them may run at the same time.
type class uint8

const (
	fresh       class = iota // no limit
	redelivered              // Config.MaxRedelivered
	suspect                  // limited to one, see Hold.Suspect
	classes
)

// classOf returns the class of h. If the backend refunds attempts, a first attempt doesn't count as
// redelivered: a member gave the message back before any handler had seen it.
func (l *Ledger) classOf(h *Hold) class {
	switch {
	case h.Suspect:
		return suspect
	case l.MaxRedelivered > 0 && (h.Attempt > 1 || h.Redriven || h.Delivery.Redelivered && !h.Source.Refunds):
		return redelivered
	}
	return fresh
}

// mayRun reports whether one more Hold of class c may run.
func (l *Ledger) mayRun(c class) bool {
	switch c {
	case redelivered:
		return l.running[c] < l.MaxRedelivered
	case suspect:
		return l.running[c] < 1
	}
	return true
}

// readyQueues holds the Holds of a source that a worker may take, in one queue for each class, in
// the order of arrival.
type readyQueues [classes]queue

func (l *readyQueues) empty() bool {
	for c := range l {
		if l[c].len() > 0 {
			return false
		}
	}
	return true
}

// enqueue adds h, which is ready, to a queue of its source: at the front if first is set, otherwise
// at the back.
func (l *Ledger) enqueue(h *Hold, first bool) {
	s := h.Source
	if q := &s.ready[h.class]; first {
		q.unshift(h)
	} else {
		q.push(h)
	}
	l.readyByClass[h.class]++
	if !s.hasReady {
		s.hasReady = true
		l.withReady = append(l.withReady, s)
	}
}

// dequeue removes h from the queue it is in.
func (l *Ledger) dequeue(h *Hold) {
	if h.Source.ready[h.class].remove(h) {
		l.readyByClass[h.class]--
	}
}

// readySources returns the sources with ready Holds.
func (l *Ledger) readySources() []*Source {
	l.withReady = slices.DeleteFunc(l.withReady, func(s *Source) bool {
		s.hasReady = !s.ready.empty()
		return !s.hasReady
	})
	return l.withReady
}

// startable returns how many Holds a worker may take now.
func (l *Ledger) startable() (n int) {
	for c, some := range l.readyByClass {
		if some > 0 && l.mayRun(class(c)) {
			n += some
		}
	}
	return n
}

// startableOf returns how many Holds of s a worker may take now.
func (l *Ledger) startableOf(s *Source) (n int) {
	for c := range s.ready {
		if some := s.ready[c].len(); some > 0 && l.mayRun(class(c)) {
			n += some
		}
	}
	return n
}

// pick takes the next Hold of s to run, or returns nil if there is none.
func (l *Ledger) pick(s *Source) *Hold {
	h := l.choose(s)
	if h != nil {
		l.readyByClass[h.class]--
	}
	return h
}

// choose is like pick, but doesn't count the Hold. Redelivered Holds come first. A suspect and a
// fresh Hold have equal chances, because a suspect may crash the process.
func (l *Ledger) choose(s *Source) *Hold {
	q := &s.ready
	switch {
	case q[redelivered].len() > 0 && l.mayRun(redelivered):
		return q[redelivered].pop()
	case q[suspect].len() > 0 && l.mayRun(suspect) && (q[fresh].len() == 0 || l.randN(2) == 0):
		return q[suspect].take(l.randN(q[suspect].len()))
	case q[fresh].len() > 0:
		return q[fresh].pop()
	}
	return nil
}

// A queue is a FIFO queue of Holds.
type queue struct {
	items []*Hold
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) first() *Hold { return q.items[q.head] }

func (q *queue) last() *Hold { return q.items[len(q.items)-1] }

func (q *queue) push(h *Hold) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, h)
}

// unshift adds h at the front.
func (q *queue) unshift(h *Hold) {
	if q.head > 0 {
		q.head--
		q.items[q.head] = h
		return
	}
	q.items = slices.Insert(q.items, 0, h)
}

func (q *queue) pop() *Hold {
	h := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return h
}

func (q *queue) take(i int) *Hold {
	h := q.items[q.head+i]
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	return h
}

// remove removes h, and reports whether it was in q.
func (q *queue) remove(h *Hold) bool {
	i := slices.Index(q.items[q.head:], h)
	if i >= 0 {
		q.take(i)
	}
	return i >= 0
}
