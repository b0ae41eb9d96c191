package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// Cut resets every connection at both ends, and loses bytes in flight. All connections are
// broken when Cut returns. New connections work.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.end(true)
	}
}

// Refuse makes the server look down while on is set: the proxy cuts all connections, and
// closes each new connection immediately.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.Cut()
	}
}

// Freeze stops the bytes of every connection, also of new ones, in both directions until
// thaw is called. Connections stay open and no byte is lost. A write in progress may still
// pass. After several calls of Freeze, the bytes pass again when every thaw was called. A
// second call of the same thaw does nothing.
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

// Swallow simulates a half-open peer while on is set. The bytes of clients arrive, but all
// bytes from the server are discarded, and clients do not see the server close. After
// Swallow(false) new connections work. Older connections stay dead until one end closes
// them, because bytes of their streams are missing.
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

// SwallowOne simulates one half-open connection: the connection of the next request for which
// match is true. The request and later bytes of the client arrive, but all bytes from the
// server are discarded. Other connections work. For match see DropReply.
func (p *Proxy) SwallowOne(match func(request []byte) bool) { p.mute.Store(&match) }

// matches reports whether chunk is the request that the call of SwallowOne awaits, and ends
// that call.
func matches(mute *atomic.Pointer[func([]byte) bool], chunk []byte) bool {
	m := mute.Load()
	return m != nil && (*m)(chunk) && mute.CompareAndSwap(m, nil)
}

// Delay delays bytes by d ± jitter in each direction, so a round trip takes 2 d longer. It
// keeps the order and does not limit the throughput. Zero ends the delay.
func (p *Proxy) Delay(d, jitter time.Duration) {
	p.jitter.Store(int64(jitter))
	p.delay.Store(int64(d))
}

// Throttle limits all connections together to bytesPerSecond in each direction. Zero ends
// it.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.up.rate.Store(int64(bytesPerSecond))
	p.down.rate.Store(int64(bytesPerSecond))
}

// pass waits until the proxy is not frozen; it returns false if done was closed first.
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
