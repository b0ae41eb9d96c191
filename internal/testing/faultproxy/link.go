package faultproxy

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// link is a client's connection together with its connection to the server. It runs two
// goroutines: up carries requests, down carries replies.
type link struct {
	proxy  *Proxy
	client net.Conn
	done   chan struct{} // closed by end
	dead   atomic.Bool   // set by Swallow: bytes from the server no longer pass
	gone   atomic.Bool   // a write to the server has failed

	requests requests // owned by up
	replies  replies  // owned by down
	sent     atomic.Int64
	replied  atomic.Int64
	answered atomic.Bool // the server has sent bytes since the client began its request
	strange  atomic.Bool // replies are not RESP and cannot be numbered
	taken    atomic.Bool // drop is not nil; readable without the lock

	mu     sync.Mutex
	ended  bool
	server net.Conn // nil before dial
	drop   *drop    // the reply to lose on this link; nil: none
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client, done: make(chan struct{})}
	l.requests.named = l.named
	l.requests.counters = &p.counts
	l.answered.Store(true)
	return l
}

// run dials the server and carries bytes until the connection ends.
func (l *link) run() {
	server, err := l.proxy.dial()
	if err != nil || !l.connect(server) {
		l.end(true)
		return
	}
	var up sync.WaitGroup
	up.Go(l.up)
	l.down()
	up.Wait()
}

// connect stores the connection to the server, unless the link has ended.
func (l *link) connect(server net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = server
	if l.ended {
		reset(server)
	}
	return !l.ended
}

// end closes both connections; hard resets them, so bytes in flight are lost.
func (l *link) end(hard bool) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.ended = true
	d := l.drop
	l.drop = nil
	conns := []net.Conn{l.client}
	if l.server != nil {
		conns = append(conns, l.server)
	}
	l.mu.Unlock()
	// Rearm before the connection breaks, so that the drop applies to the next request of a
	// client that sees the break.
	if d != nil {
		l.proxy.rearm(d)
	}
	l.proxy.remove(l)
	close(l.done)
	for _, c := range conns {
		if hard {
			reset(c)
		} else {
			c.Close()
		}
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// up carries requests until the client closes. If the server accepts no more bytes, up only
// discards requests, because the server may still have sent a reply. The method down then
// ends the link.
func (l *link) up() {
	f := &flow{link: l, from: l.client, to: l.server, direction: &l.proxy.up, deaf: l.gone.Load}
	for {
		err := f.run(l.request)
		if errors.Is(err, io.EOF) {
			l.end(false)
			return
		}
		select {
		case <-l.done:
			return
		default:
		}
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "write" {
			l.gone.Store(true)
			continue
		}
		l.end(true)
		return
	}
}

// down carries replies until the server closes. If dead is set, it does not close the
// connection to the client, which thus does not see the server close.
func (l *link) down() {
	f := &flow{link: l, from: l.server, to: l.client, direction: &l.proxy.down, deaf: l.dead.Load}
	err := f.run(l.reply)
	switch {
	case err == nil: // the reply to drop has arrived
		l.mu.Lock()
		d := l.drop
		l.drop = nil
		l.mu.Unlock()
		l.end(true)
		if d != nil {
			close(d.done)
		}
	case l.dead.Load():
		<-l.done
	default:
		l.end(!errors.Is(err, io.EOF))
	}
}

// request inspects a chunk from the client.
func (l *link) request(chunk []byte) (pass int, last bool) {
	p := l.proxy
	if matches(&p.mute, chunk) {
		l.dead.Store(true)
	}
	numbered := p.resp && !l.requests.lost
	if (!numbered || l.requests.state == between) && l.idle(numbered) {
		p.counts.roundTrips.Add(1)
	}
	free := !l.taken.Load()
	if free && p.armed.Load() > 0 {
		if d := p.take(func(d *drop) bool { return d.chunk != nil && d.chunk(chunk) }); d != nil {
			from := l.sent.Load()
			if l.requests.unnamed() {
				from++
			}
			l.accept(d, from, numbered)
		}
	}
	if numbered {
		l.requests.feed(chunk)
		if free && l.taken.Load() {
			l.extend()
		}
	}
	return len(chunk), false
}

// idle reports whether the client awaited no reply, and records that it awaits one now.
func (l *link) idle(numbered bool) bool {
	answered := l.answered.Load()
	if answered {
		l.answered.Store(false)
	}
	if numbered && !l.strange.Load() {
		return l.sent.Load() == l.replied.Load()
	}
	return answered
}

// named counts a command by its name, and drops its reply if a fault asks for it.
func (l *link) named(name []byte) {
	n := l.sent.Add(1)
	if l.proxy.armed.Load() == 0 || l.taken.Load() {
		return
	}
	match := func(d *drop) bool { return d.chunk == nil && slices.Contains(d.commands, string(name)) }
	if d := l.proxy.take(match); d != nil {
		l.accept(d, n, true)
	}
}

// accept makes d the drop of this link. The first reply to drop has the number from.
func (l *link) accept(d *drop, from int64, numbered bool) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		l.proxy.rearm(d)
		return
	}
	d.from, d.until, d.numbered = from, from, numbered
	l.drop = d
	l.taken.Store(true)
	l.mu.Unlock()
}

// extend makes the drop that was just taken include the replies to all commands of this read.
func (l *link) extend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.drop; d != nil {
		d.until = max(d.until, l.sent.Load())
	}
}

// reply inspects a chunk from the server. Bytes before the first reply to drop pass. When
// the last reply to drop is complete, last is true.
func (l *link) reply(chunk []byte) (pass int, last bool) {
	if !l.answered.Load() {
		l.answered.Store(true)
	}
	var d *drop
	var from, until int64
	numbered := l.proxy.resp
	if l.taken.Load() {
		l.mu.Lock()
		if d = l.drop; d != nil {
			from, until = d.from, d.until
			numbered = numbered && d.numbered
		}
		l.mu.Unlock()
	}
	if d != nil && (!numbered || l.replies.lost) {
		return 0, true
	}
	if !l.proxy.resp || l.replies.lost {
		return len(chunk), false
	}
	pass = -1
	for at := 0; at < len(chunk); {
		if pass < 0 && d != nil && l.replied.Load()+1 >= from {
			pass = at
		}
		n, ended := l.replies.next(chunk[at:])
		at += n
		if l.replies.lost {
			l.strange.Store(true)
			break
		}
		if ended && !l.replies.push && l.replied.Load() < l.sent.Load() {
			l.replied.Add(1)
		}
		if d != nil && l.replied.Load() >= until {
			last = true
		}
	}
	if pass < 0 {
		pass = len(chunk)
	}
	return pass, last
}
