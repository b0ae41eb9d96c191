package redisstream

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A conn is a connection that its wire can close at any moment: go-redis looks at
// deadlines only, and only at the beginning of a call.
type conn struct {
	net.Conn
	wire   *wire
	ready  atomic.Bool // greeting and authentication are done: what is written now is commands
	id     int64       // by which the server knows it, 0 if not known; set before ready
	closed atomic.Bool
}

// Read implements [net.Conn]. The time that an answer may take begins anew with
// each piece of it: a slow line is not a server that hangs.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && err == nil {
		err = c.SetReadDeadline(time.Now().Add(c.wire.wait))
	}
	return n, err
}

const maxWrite = 256 << 10 // bytes of one write, so that each has its time

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (n int, err error) {
	if c.ready.Load() {
		c.wire.sent.Store(true)
		c.wire.line.Store(c)
	}
	for n < len(p) && err == nil {
		if n > 0 {
			err = c.SetWriteDeadline(time.Now().Add(c.wire.wait))
		}
		if err == nil {
			var k int
			k, err = c.Conn.Write(p[n:min(n+maxWrite, len(p))])
			n += k
		}
	}
	return n, err
}

// Close implements [net.Conn]. Closing twice is no error: the wire and go-redis
// both may.
func (c *conn) Close() error {
	c.wire.line.CompareAndSwap(c, nil)
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	if c.closed.Swap(true) {
		return nil
	}
	return c.Conn.Close()
}

// SyscallConn implements [syscall.Conn]: by it go-redis finds out that a
// connection was closed before it writes to it.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	return system(c.Conn)
}

// system returns what the system knows of a connection. Under TLS that is the
// connection below, on which a server says nothing unasked but that it ends.
func system(inner net.Conn) (syscall.RawConn, error) {
	const maxLayers = 4
	for range maxLayers {
		if s, ok := inner.(syscall.Conn); ok {
			return s.SyscallConn()
		}
		layer, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = layer.NetConn()
	}
	return noSyscalls{}, nil
}

// noSyscalls is a connection of which nothing can be said.
type noSyscalls struct{}

func (noSyscalls) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (noSyscalls) Read(func(uintptr) bool) error  { return nil }
func (noSyscalls) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
