package publish

import (
	"context"
	"time"
)

// defaultSlots is the number of concurrent writes if the backend doesn't state one.
const defaultSlots = 4

// try makes one attempt to store the messages of c. If a slot is free and the queue is empty, the
// caller writes them itself; otherwise they go through the queue. While a goroutine of the queue is
// running, every call goes through the queue, which keeps writes few and large.
func (p *Publisher) try(c *call, now time.Time) (err error) {
	switch p.begin(c, now) {
	case dropped:
		return c.err
	case queued:
		return p.await(c)
	}
	if p.limits.Publishers < 0 {
		return p.write(c.ctx, c.msgs)
	}
	ctx, cancel := p.bound(c.ctx, c.until)
	p.hold(c, cancel, now)
	defer func() { p.release(c, err) }() // even if the driver ends the goroutine
	return p.write(ctx, c.msgs)
}

// begin starts a try of c and returns the resulting state: dropped, queued or writing. In the state
// writing, the caller has a slot, unless the backend doesn't limit writes.
func (p *Publisher) begin(c *call, now time.Time) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch l := p.queueFor(c); {
	case c.state == dropped:
	case p.limits.Publishers < 0:
		c.state = writing
	case p.serving > 0 || p.free == 0 || l != &p.queue:
		c.state = queued
		l.add(c)
		p.serve()
		p.watch(now)
	default:
		c.state = writing
		p.free--
	}
	return c.state
}

// hold starts the flight of a caller that writes its messages itself. Close ends it with cancel.
func (p *Publisher) hold(c *call, cancel context.CancelFunc, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.flight = flight{msgs: c.msgs, since: now, cancel: cancel}
	p.under[&c.flight] = struct{}{}
	p.watch(now)
	if p.done.Err() != nil {
		cancel()
	}
}

func (p *Publisher) release(c *call, err error) {
	c.flight.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.endFlight(&c.flight, err) {
		p.free++
	}
	p.serve()
}

// cut ends the writes of all callers that write their messages themselves.
func (p *Publisher) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.under {
		f.cancel()
	}
}

// more returns how many further goroutines may serve the queue. They get half of the slots: with a
// single goroutine all calls would fail together, and with more goroutines the writes would be
// small.
func (cs *calls) more() int { return min(cs.free, (cs.slots+1)/2-cs.serving) }

// serve starts the goroutines that write waiting calls: those of the queue, and one for each
// suspect topic that may be probed.
func (p *Publisher) serve() {
	for p.more() > 0 && len(p.queue.calls) > p.coming {
		p.serving++
		p.coming++
		p.free--
		p.running.Go(p.run)
	}
	for _, s := range p.suspects {
		if len(s.queue.calls) > 0 && p.mayProbe(s) {
			s.probed = true
			s.slotless++
			p.slotless++
			p.running.Go(func() { p.probe(s) })
		}
	}
}

// await waits for the result of c, which is queued.
func (p *Publisher) await(c *call) error {
	reason := p.wait(c.ctx, c.until, c.woken, nil)
	if reason == nil {
		return c.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c.state {
	case queued:
		c.queue.remove(c)
		c.state = between
		return notSent(reason)
	case writing:
		c.state = left
		p.fenceKeys(c)
		return unknown(reason)
	}
	<-c.woken // the result has only just arrived
	return c.err
}
