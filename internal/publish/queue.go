package publish

import "context"

// defaultSlots is the number of concurrent writes if the backend states none.
const defaultSlots = 4

// try makes one try to store the messages of c. If a slot is free and the queue is empty, the
// caller writes them itself. Otherwise they go through the queue. While the goroutine of the
// queue runs, every call goes through the queue, so that writes are few and large. This also
// keeps the order of a caller that stopped waiting for a call being written: its next call
// is stored later.
func (p *Publisher) try(c *call) error {
	switch p.begin(c) {
	case dropped:
		return c.err
	case queued:
		return p.await(c)
	}
	if p.limits.Publishers < 0 {
		return p.write(c.ctx, c.msgs)
	}
	ctx, cancel := p.bound(c.ctx, c.until)
	p.hold(c, cancel)
	defer p.release(c)
	return p.write(ctx, c.msgs)
}

// begin returns how a try of c goes on: dropped, queued, or writing. In state writing the
// caller has a slot, unless the backend limits no writes.
func (p *Publisher) begin(c *call) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.state == dropped:
	case p.limits.Publishers < 0:
		c.state = writing
	case p.served || p.free == 0:
		c.state = queued
		p.queue = append(p.queue, c)
		p.serve()
	default:
		c.state = writing
		p.free--
	}
	return c.state
}

// hold notes how Close ends the write of a caller that writes itself.
func (p *Publisher) hold(c *call, cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.cancel = cancel
	p.writers[c] = struct{}{}
	if p.done.Err() != nil {
		cancel()
	}
}

func (p *Publisher) release(c *call) {
	c.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.writers, c)
	p.free++
	p.serve()
}

// cut ends the writes of all callers that write themselves.
func (p *Publisher) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.writers {
		c.cancel()
	}
}

// serve starts the goroutine of the queue if calls wait, a slot is free, and the goroutine
// does not run.
func (p *Publisher) serve() {
	if !p.served && len(p.queue) > 0 && p.free > 0 {
		p.served = true
		p.free--
		p.serving.Go(p.run)
	}
}

// await waits for the result of c, which is queued.
func (p *Publisher) await(c *call) error {
	reason := p.wait(c.ctx, c.until, c.woken)
	if reason == nil {
		return c.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c.state {
	case queued:
		p.queue = without(p.queue, c)
		c.state = between
		return notSent(reason)
	case writing:
		c.state = left
		return unknown(reason)
	}
	<-c.woken // the result has come just now
	return c.err
}
