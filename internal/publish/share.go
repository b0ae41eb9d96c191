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
func (p *Publisher) run() {
	var s share
	for p.gather(&s) {
		ctx, cancel := p.bound(p.done, p.deadline(time.Now()))
		p.tell(&s, p.write(ctx, s.pointers))
		cancel()
		runtime.Gosched() // lets callers with a result add their next call to the next write
	}
}

// gather takes the calls of the next write from the queue. If no call waits, it frees the
// slot and returns false.
func (p *Publisher) gather(s *share) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(s.calls)
	clear(s.messages)
	s.calls, s.messages, s.pointers = s.calls[:0], s.messages[:0], s.pointers[:0]
	now := time.Now()
	p.queue = slices.DeleteFunc(p.queue, func(c *call) bool {
		over := c.ctx.Err()
		if over == nil && !c.until.IsZero() && !now.Before(c.until) {
			over = p.late
		}
		if over != nil { // the time of the caller is over
			c.wake(written, notSent(over))
		}
		return over != nil
	})
	if len(p.queue) == 0 || p.done.Err() != nil {
		p.served = false
		p.free++
		return false
	}
	var sum size
	for _, c := range p.queue {
		sum = sum.plus(sizeOf(c.msgs))
		if len(s.calls) > 0 && (sum.messages > p.most || sum.bytes > bytesPerWrite) {
			break
		}
		c.state = writing
		s.calls = append(s.calls, c)
	}
	p.queue = slices.Delete(p.queue, 0, len(s.calls))
	s.copy()
	return true
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
func (p *Publisher) tell(s *share, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
		c.wake(written, backend.AsBatchError(errs))
	}
}
