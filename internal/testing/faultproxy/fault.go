package faultproxy

import (
	"sync"
	"time"
)

// Cut breaks every connection, towards both ends, with a reset: what was on the
// way is lost. New connections pass. All are broken when it returns.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.end(true)
	}
}

// Refuse makes the server look down while it is on: connections are cut, and new
// ones closed at once.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.Cut()
	}
}

// Freeze stops the bytes of every connection in both directions, of new ones
// too. Connections stay open and nothing is lost: all goes on when thaw is
// called. What was already being written may still pass. Several may freeze; the
// last thaw counts. Thawing twice does no harm.
func (p *Proxy) Freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen++
	if p.frozen == 1 {
		p.gate = make(chan struct{})
		p.gated.Store(true)
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.frozen--
		if p.frozen == 0 {
			p.gated.Store(false)
			close(p.gate)
			p.gate = nil
		}
	})
}

// Swallow makes the server a half-open peer: while it is on, what the server says
// on any connection is discarded, even that it has gone; what clients send
// arrives. Once it is off new connections are fine, and those that were open
// meanwhile stay dead until an end closes them: a stream with a hole is of no use.
func (p *Proxy) Swallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallowing = on
	if on {
		for l := range p.links {
			l.dead.Store(true)
		}
	}
}

// Delay lets bytes arrive d later, give or take jitter, in each direction: a
// round trip takes two. It is latency, not a slow line: as many bytes arrive in
// a second as before, in their order. Zero ends it.
func (p *Proxy) Delay(d, jitter time.Duration) {
	p.jitter.Store(int64(jitter))
	p.delay.Store(int64(d))
}

// Throttle makes the line slow: all connections together get bytesPerSecond in
// each direction. Zero ends it.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.up.rate.Store(int64(bytesPerSecond))
	p.down.rate.Store(int64(bytesPerSecond))
}

// pass returns when nobody freezes; false if done was closed before.
func (p *Proxy) pass(done <-chan struct{}) bool {
	for p.gated.Load() {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		if gate == nil {
			continue
		}
		select {
		case <-gate:
		case <-done:
			return false
		}
	}
	return true
}
