package faultproxy

import (
	"sync"
	"sync/atomic"
)

// counts has the counts since the proxy was started.
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

// RoundTrips returns how often a client began to send while it awaited no reply. A pipeline
// is one round trip, however long it is. With [RESP] a client awaits one reply for each
// command. Without RESP it awaits the first bytes from the server.
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
