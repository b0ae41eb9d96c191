package faultproxy

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Cut resets every connection at both ends, losing the bytes in flight. When it returns, all
// connections are broken. New connections work.
func (p *Proxy) Cut() {
	for _, l := range p.open() {
		l.end(true)
	}
}

// Refuse makes the server look down while on is set: the proxy cuts all connections and closes
// new ones at once.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	p.refusing = on
	p.mu.Unlock()
	if on {
		p.Cut()
	}
}

// Freeze stops the bytes of every connection, including new ones, in both directions until thaw
// is called. Connections stay open and no byte is lost, but a write in progress may still pass.
// After several calls of Freeze, bytes pass again once every thaw was called. Calling the same
// thaw twice has no further effect.
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

// Swallow simulates a half-open peer while on is set: the bytes of clients arrive, but all bytes
// from the server are discarded, and clients do not see the server close. After Swallow(false)
// new connections work. Older ones stay dead until one end closes them, because bytes of their
// streams are missing.
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

// SwallowOne simulates one half-open connection: that of the next request for which match is
// true. The request and later bytes of the client arrive, but all bytes from the server are
// discarded. Other connections work. For match, see [Proxy.DropReply].
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

// Throttle limits all connections together to bytesPerSecond in each direction. Zero ends the
// limit.
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

// drop is one reply to lose.
type drop struct {
	chunk    func(request []byte) bool // matches the bytes of one read; nil: use commands
	commands []string                  // upper-case names, if chunk is nil
	done     chan struct{}             // closed when the reply is lost

	// If numbered is set, the replies to lose have the numbers from to until; replies are
	// counted on each connection. The mutex of the link that has taken the drop guards
	// these fields.
	from, until int64
	numbered    bool
}

// DropReply loses the reply to the next request for which match is true (nil means any). The
// request reaches the server and takes effect. The proxy waits for the reply, drops it, cuts the
// connection, and closes the returned channel. If the connection ends before the reply, DropReply
// loses the reply to the next matching request instead. Each of several calls loses the reply to
// a request of its own.
//
// A request is the bytes of one read, at most 64 KiB: usually one flush of the client, which is a
// whole pipeline or a part of a long one. With [RESP] the proxy drops the replies to all commands
// in the request, and replies to earlier commands still reach the client. Without RESP, the next
// bytes from the server count as the reply, so match should choose a request that is sent while
// no other answer is due.
//
// match must not keep its bytes and must not call the proxy.
func (p *Proxy) DropReply(match func(request []byte) bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	return p.arm(&drop{chunk: match})
}

// DropReplyTo is like DropReply, but loses the reply to the next Redis command with one of these
// names (XADD, EVALSHA, …; in either case), anywhere in a pipeline. Replies to earlier commands
// still reach the client; those to later commands of the same read are lost too. It panics on a
// proxy without [RESP].
func (p *Proxy) DropReplyTo(command ...string) <-chan struct{} {
	if !p.resp {
		panic("faultproxy: DropReplyTo needs a proxy with RESP")
	}
	names := make([]string, len(command))
	for i, c := range command {
		names[i] = strings.ToUpper(c)
	}
	return p.arm(&drop{commands: names})
}

func (p *Proxy) arm(d *drop) <-chan struct{} {
	d.done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	p.armed.Store(int32(len(p.drops)))
	return d.done
}

// rearm puts d back as the first drop, because its connection ended before the reply.
func (p *Proxy) rearm(d *drop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = slices.Insert(p.drops, 0, d)
	p.armed.Store(int32(len(p.drops)))
}

// take removes and returns the first drop that matches, or nil.
func (p *Proxy) take(match func(*drop) bool) *drop {
	if p.armed.Load() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.drops, match)
	if i < 0 {
		return nil
	}
	d := p.drops[i]
	p.drops = slices.Delete(p.drops, i, i+1)
	p.armed.Store(int32(len(p.drops)))
	return d
}
