package faultproxy

import (
	"slices"
	"strings"
)

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

// DropReply loses the reply to the next request for which match is true (nil: any). The
// request reaches the server and takes effect. The proxy waits for the reply, drops it,
// cuts the connection, and closes the channel. If the connection ends before the reply,
// DropReply loses the reply to the next matching request instead. After several calls, each
// loses the reply to its own request.
//
// A request is the bytes of one read, at most 64 KiB: usually one flush of the client, a
// whole pipeline or a part of a long one. With [RESP] the proxy drops the replies to all
// commands in the request; replies to earlier commands reach the client. Without RESP the
// next bytes from the server are the reply. So match should choose a request that is sent
// while no other answer is due.
//
// match must not keep its bytes, and must not call the proxy.
func (p *Proxy) DropReply(match func(request []byte) bool) <-chan struct{} {
	if match == nil {
		match = func([]byte) bool { return true }
	}
	return p.arm(&drop{chunk: match})
}

// DropReplyTo is like DropReply, but loses the reply to the next Redis command of one of
// these names (XADD, EVALSHA, …; in either case), anywhere in a pipeline. Replies to
// earlier commands reach the client. The replies to all later commands of the same read are
// lost too. It panics on a proxy without [RESP].
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
