// Package faultproxy is a TCP proxy that a test puts in front of a real server to harm its
// connections as networks do: it cuts, refuses, freezes or delays them, or loses a reply. It also
// counts requests.
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

// A Proxy passes connections on to one server. Its methods are safe for concurrent use.
//
// It runs one goroutine that accepts connections, and two for each connection. Close waits for
// all of them.
type Proxy struct {
	target   string
	listener net.Listener
	resp     bool
	running  sync.WaitGroup

	delay, jitter atomic.Int64 // nanoseconds
	up, down      direction
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

// An Option describes the traffic through the proxy.
type Option func(*Proxy)

// RESP makes the proxy parse the requests and replies of Redis. Then [Proxy.Commands] counts
// commands, and [Proxy.DropReply] drops exactly the replies to the matched commands. Traffic that
// is not RESP passes unchanged and is no longer counted.
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

// counts holds the counts since the proxy was started.
type counts struct {
	roundTrips atomic.Int64

	mu       sync.Mutex
	commands map[string]*atomic.Int64
}

// command returns the counter of a command.
func (c *counts) command(name string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.commands[name]
	if n == nil {
		n = new(atomic.Int64)
		c.commands[name] = n
	}
	return n
}

// Commands returns how many Redis commands clients have sent, by upper-case name. It is
// empty on a proxy without [RESP].
func (p *Proxy) Commands() map[string]int64 {
	p.counts.mu.Lock()
	defer p.counts.mu.Unlock()
	m := make(map[string]int64, len(p.counts.commands))
	for name, n := range p.counts.commands {
		m[name] = n.Load()
	}
	return m
}

// RoundTrips returns how often a client has begun to send while it was awaiting no reply. A
// pipeline is one round trip, however long it is. With [RESP] a client awaits one reply for each
// command; without it, the first bytes from the server.
func (p *Proxy) RoundTrips() int64 { return p.counts.roundTrips.Load() }

// Connections returns how many connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Bytes returns how many bytes clients have sent and received.
func (p *Proxy) Bytes() (sent, received int64) {
	return p.up.bytes.Load(), p.down.bytes.Load()
}
