package publish

import (
	"runtime"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A share has the calls of one write, and copies of their messages. The next write uses its
// memory again.
type share struct {
	calls    []*call
	messages []backend.Message
	pointers []*backend.Message
	payloads []byte
}

// run is the goroutine of the queue. It writes the waiting calls, until none is left.
func (q *queue) run(slot int) {
	p := q.publisher
	var s share
	for q.gather(&s, slot) {
		ctx, cancel := p.bound(p.done, p.deadline(time.Now()))
		q.tell(&s, p.write(ctx, s.pointers))
		cancel()
		runtime.Gosched() // lets callers with a result add their next call to the next write
	}
}

// gather takes the calls of the next write from the queue. If no call waits, it frees the
// slot and returns false.
func (q *queue) gather(s *share, slot int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(s.calls)
	clear(s.messages)
	s.calls, s.messages, s.pointers = s.calls[:0], s.messages[:0], s.pointers[:0]
	now := time.Now()
	q.waiting = slices.DeleteFunc(q.waiting, func(c *call) bool {
		over := c.ctx.Err()
		if over == nil && !c.until.IsZero() && !now.Before(c.until) {
			over = q.publisher.late
		}
		if over != nil { // the time of the caller is over
			c.end(notSent(over))
		}
		return over != nil
	})
	for len(s.calls) == 0 {
		if len(q.waiting) == 0 || q.publisher.done.Err() != nil {
			q.served = false
			q.free = append(q.free, slot)
			return false
		}
		q.pick(s)
	}
	s.copy()
	return true
}

// pick moves the first calls that fit into one write from the queue to s. It ends calls that
// were dropped.
func (q *queue) pick(s *share) {
	var sum size
	picked := 0
	for _, c := range q.waiting {
		sum = sum.plus(sizeOf(c.msgs))
		if len(s.calls) > 0 && (sum.messages > q.publisher.most || sum.bytes > bytesPerWrite) {
			break
		}
		picked++
		if !q.publisher.admission.begin(c.droppable) {
			sum = sum.minus(sizeOf(c.msgs))
			c.end(notSent(ErrDropped))
			continue
		}
		c.state = underWay
		s.calls = append(s.calls, c)
	}
	q.waiting = slices.Delete(q.waiting, 0, picked)
}

// copy copies the messages, because the backend sets their positions. It copies the payloads
// too, because a caller whose Publish returned early may change them. No Publish returns
// during copy, because the queue's lock is held.
func (s *share) copy() {
	bytes := 0
	for _, c := range s.calls {
		for _, m := range c.msgs {
			s.messages = append(s.messages, *m)
			bytes += len(m.Payload)
		}
	}
	s.payloads = slices.Grow(s.payloads[:0], bytes)
	for i := range s.messages {
		m, from := &s.messages[i], len(s.payloads)
		s.payloads = append(s.payloads, m.Payload...)
		m.Payload = s.payloads[from:len(s.payloads):len(s.payloads)]
		s.pointers = append(s.pointers, m)
	}
}

// tell passes the results of a write to the callers that still wait.
func (q *queue) tell(s *share, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := 0
	for _, c := range s.calls {
		from := at
		at += len(c.msgs)
		if c.state == left {
			continue
		}
		var errs []error
		for i, m := range c.msgs {
			m.Position, m.Duplicate = s.messages[from+i].Position, s.messages[from+i].Duplicate
			if err != nil {
				errs = append(errs, backend.ErrorAt(err, from+i))
			}
		}
		c.end(backend.AsBatchError(errs))
	}
}
