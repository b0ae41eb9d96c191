// Package faultproxy puts a TCP proxy in front of a real server, which does to
// connections what networks do: cut, refuse, freeze, swallow, delay, lose one
// reply. It also counts what clients send. It is for tests.
package faultproxy

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy passes connections on to one server. Its methods may be called by many
// goroutines at once, at any time.
//
// It runs one goroutine that accepts and two for each connection; Close waits
// for them.
type Proxy struct {
	target   string
	listener net.Listener
	resp     bool
	running  sync.WaitGroup

	delay, jitter atomic.Int64 // nanoseconds
	up, down      line
	counts        counts
	armed         atomic.Int32 // len(drops), to be read without the lock

	mu         sync.Mutex
	links      map[*link]struct{}
	closed     bool
	refusing   bool
	swallowing bool
	frozen     int           // callers of Freeze that have not thawed
	gate       chan struct{} // closed when nobody freezes any more; nil if nobody does
	gated      atomic.Bool   // gate is not nil, to be read without the lock
	drops      []*drop       // waiting for their request, in the order of the calls
}

// Option says what the proxy may assume of the traffic.
type Option func(*Proxy)

// RESP makes the proxy read requests and replies as Redis speaks them:
// [Proxy.Commands] counts, and [Proxy.DropReply] drops exactly the replies of
// what it has matched. A connection on which something else is spoken passes
// unharmed and is not counted from there on.
func RESP(p *Proxy) { p.resp = true }

// New starts a proxy on a free port of 127.0.0.1 in front of target, a host:port
// or the path of a unix socket. Target need not be up. The proxy ends with the
// test.
func New(t testing.TB, target string, o ...Option) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: listen: %v", err)
	}
	p := &Proxy{target: target, listener: l, links: map[*link]struct{}{}}
	p.counts.commands = map[string]*atomic.Int64{}
	for _, f := range o {
		f(p)
	}
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr is where clients connect to, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close breaks every connection and returns when all that the proxy has started
// has ended. New calls it at the end of the test.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			if p.isClosed() {
				return
			}
			// Out of file descriptors, as after a storm of connections.
			wait(nil, 10*time.Millisecond)
			continue
		}
		l := newLink(p, c)
		if !p.add(l) {
			l.end(true)
			continue
		}
		p.running.Go(l.run)
	}
}

func (p *Proxy) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// add lets l in, unless nobody is let in.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		return false
	}
	l.dead.Store(p.swallowing)
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// open lists the connections of now.
func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*link, 0, len(p.links))
	for l := range p.links {
		list = append(list, l)
	}
	return list
}

// dial connects to the server.
func (p *Proxy) dial() (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(p.target, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, p.target, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	return c, nil
}
