// Package faultproxy is a TCP proxy for tests, in front of a real server. It harms
// connections as networks do: it cuts, refuses, freezes or delays them, or loses a reply.
// It also counts requests.
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

// Proxy passes connections on to one server. Its methods are safe for concurrent use.
//
// It runs one goroutine that accepts connections, and two for each connection. Close waits
// for all of them.
type Proxy struct {
	target   string
	listener net.Listener
	resp     bool
	running  sync.WaitGroup

	delay, jitter atomic.Int64 // nanoseconds
	up, down      line
	counts        counts
	armed         atomic.Int32                              // len(drops), readable without the lock
	mute          atomic.Pointer[func(request []byte) bool] // see SwallowOne; nil: none

	mu         sync.Mutex
	links      map[*link]struct{}
	closed     bool
	refusing   bool
	swallowing bool
	frozen     int           // calls of Freeze without a call of thaw
	gate       chan struct{} // closed by the last thaw; nil if not frozen
	gated      atomic.Bool   // gate is not nil; readable without the lock
	drops      []*drop       // replies to lose, in the order of the calls of DropReply
}

// Option describes the traffic to the proxy.
type Option func(*Proxy)

// RESP makes the proxy parse requests and replies of Redis. [Proxy.Commands] then counts,
// and [Proxy.DropReply] drops exactly the replies to the matched commands. Other traffic
// passes unchanged and is no longer counted.
func RESP(p *Proxy) { p.resp = true }

// New starts a proxy on a free port of 127.0.0.1, which ends with the test. target is a
// host:port or the path of a unix socket, and need not be up.
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

// Addr returns the address for clients, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close breaks every connection and waits for all goroutines of the proxy. New calls it at
// the end of the test.
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
			// File descriptors have run out, for example after very many connections.
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

// add registers l, unless the proxy refuses connections or is closed.
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

// open returns the current connections.
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
