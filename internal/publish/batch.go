package publish

import (
	"runtime"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A batch holds the calls of one write, and copies of their messages. The next write reuses its
// memory.
type batch struct {
	flight   flight
	calls    []*call
	messages []backend.Message
	pointers []*backend.Message
	payloads []byte
}

// run is a goroutine of the queue. It writes waiting calls until none are left or one of its writes
// has fallen silent.
func (p *Publisher) run() {
	s := p.batches.Get().(*batch)
	for first := true; p.fill(s, first) && p.writeBatch(s); first = false {
		runtime.Gosched() // lets callers that have got their result add their next call to the next write
	}
	p.batches.Put(s)
}

// probe writes waiting calls of the topic of s, once.
func (p *Publisher) probe(s *suspect) {
	sh := p.batches.Get().(*batch)
	if p.fillProbe(sh, s) {
		p.writeBatch(sh)
	}
	p.batches.Put(sh)
}

// writeBatch writes s, and reports whether its goroutine still has its slot.
func (p *Publisher) writeBatch(s *batch) bool {
	ctx, cancel := p.bound(p.done, p.deadline(s.flight.since))
	defer cancel()
	err := p.write(ctx, s.pointers)
	return p.deliver(s, err)
}

// fill takes the calls of the next write from the queue. It takes only a share of them, because
// other goroutines have started as well, and because few calls should fail together. If no calls
// are waiting, it frees the slot and returns false. first means that the goroutine has only just
// started.
func (p *Publisher) fill(s *batch, first bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first {
		p.coming--
	}
	writes := 1 + p.coming + max(p.more(), 0)
	if p.load(s, &p.queue, (len(p.queue.calls)+writes-1)/writes) {
		s.flight.queued = true
		p.serve()
		return true
	}
	p.serving--
	p.free++
	return false
}

// fillProbe is like fill, but for the calls of a suspect topic.
func (p *Publisher) fillProbe(s *batch, of *suspect) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.load(s, &of.queue, len(of.queue.calls)) {
		s.flight.probes, s.flight.suspects = of, []*suspect{of}
		return true
	}
	of.probed = false
	of.slotless--
	p.slotless--
	p.forget(of)
	return false
}

// load takes at most limit calls from l for the next write. If there are any, it starts the flight.
func (p *Publisher) load(s *batch, l *callQueue, limit int) bool {
	now := time.Now()
	l.calls = slices.DeleteFunc(l.calls, func(c *call) bool {
		over := c.ctx.Err()
		if over == nil && !c.until.IsZero() && !now.Before(c.until) {
			over = p.late
		}
		if over != nil { // the caller's time is up
			c.wake(written, notSent(over))
		}
		return over != nil
	})
	if len(l.calls) == 0 || p.done.Err() != nil {
		return false
	}
	var sum size
	for _, c := range l.calls {
		sum = sum.plus(sizeOf(c.msgs))
		if len(s.calls) == limit || len(s.calls) > 0 && (sum.messages > p.most || sum.bytes > bytesPerWrite) {
			break
		}
		c.state = writing
		s.calls = append(s.calls, c)
	}
	l.calls = slices.Delete(l.calls, 0, len(s.calls))
	s.copy()
	s.flight = flight{msgs: s.pointers, since: now, cancel: func() {}} // Close ends it through p.done
	p.under[&s.flight] = struct{}{}
	p.watch(now)
	return true
}

// copy copies the messages, because the backend sets their positions. It also copies the payloads,
// because a caller whose Publish returned early may change them. No Publish can return during copy,
// because the queue's lock is held.
func (s *batch) copy() {
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

// deliver ends the flight of s, and passes the results of its write to the callers that are still
// waiting. It reports whether the goroutine still has its slot.
func (p *Publisher) deliver(s *batch, err error) (holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := 0
	for _, c := range s.calls {
		from := at
		at += len(c.msgs)
		if c.state == left {
			p.unfenceKeys(s.messages[from:at])
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
	holds = p.endFlight(&s.flight, err)
	clear(s.calls)
	clear(s.messages)
	s.calls, s.messages, s.pointers, s.flight = s.calls[:0], s.messages[:0], s.pointers[:0], flight{}
	p.serve()
	return holds
}
