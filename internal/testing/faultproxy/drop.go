package faultproxy

import (
	"slices"
	"strings"
)

// drop is one reply to be lost.
type drop struct {
	chunk    func(request []byte) bool // matches what was read at once; nil matches names
	commands []string                  // upper-case names, if chunk is nil
	done     chan struct{}             // closed when it has happened

	// The replies to lose, by their number on the connection, and whether numbers
	// are known there. Guarded by the mutex of the link that has taken the drop.
	from, until int64
	numbered    bool
}

// DropReply lets the next request for which match is true (nil: any) take effect
// and loses its answer: the request goes to the server, the proxy waits for the
// reply, drops it and cuts the connection. The channel is closed when that has
// happened. If the connection ends before the reply is there, the next request
// that matches is taken. Several calls wait in line, each for a request of its own.
//
// A request is what the proxy reads at once, at most 64 KiB: usually one flush of
// the client, a whole pipeline or a part of a long one. On a proxy with [RESP] it
// waits for the last reply to the commands that begin in it; earlier replies
// reach the client. Without RESP the first bytes from the server are the reply,
// so that match should choose a request sent while no other answer is due.
//
// match is called with bytes that it must not keep, and must not call the proxy.
func (p *Proxy) DropReply(match func(request []byte) bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	return p.arm(&drop{chunk: match})
}

// DropReplyTo is DropReply for the next Redis command of one of these names
// (XADD, EVALSHA, …; in either case), wherever it stands in a pipeline: replies to
// commands before it reach the client, its own and those of the commands that the
// proxy has read with it are lost. It panics on a proxy without [RESP].
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

// rearm puts d back in front, because its connection ended too early.
func (p *Proxy) rearm(d *drop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = slices.Insert(p.drops, 0, d)
	p.armed.Store(int32(len(p.drops)))
}

// take gives away the first drop that matches, nil if none does.
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
