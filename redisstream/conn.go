package redisstream

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A conn is a connection whose wire can cut it off: go-redis looks at deadlines
// only, and only at the beginning of a call.
type conn struct {
	net.Conn
	wire  *wire
	ready atomic.Bool // greeting and authentication are done: what is written now is commands
	id    int64       // by which the server knows it, 0 if not known; set before ready

	closed bool // the wire's mu guards it
}

var longAgo = time.Unix(1, 0)

// SetDeadline implements [net.Conn]; of a conn that is cut it stays in the past.
func (c *conn) SetDeadline(t time.Time) error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.Conn.SetDeadline(c.wire.deadline(t))
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.Conn.SetReadDeadline(c.wire.deadline(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.wire.deadline(t))
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
	for len(p)-n > maxWrite {
		k, err := c.Conn.Write(p[n : n+maxWrite])
		if n += k; err == nil {
			err = c.SetWriteDeadline(time.Now().Add(c.wire.wait))
		}
		if err != nil {
			return n, err
		}
	}
	k, err := c.Conn.Write(p[n:])
	return n + k, err
}

// Close implements [net.Conn]. Closing twice is no error: the wire and go-redis
// both may.
func (c *conn) Close() error {
	c.wire.line.CompareAndSwap(c, nil)
	c.wire.mu.Lock()
	closed := c.closed
	c.closed = true
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	if closed {
		return nil
	}
	return c.Conn.Close()
}

// SyscallConn implements [syscall.Conn]: by it go-redis finds out that a
// connection was closed before it writes to it.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.wire.mu.Lock()
	closed := c.closed
	c.wire.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	return system(c.Conn)
}

const maxLayers = 4

// system returns what the system knows of a connection. Under TLS that is the
// connection below, on which a server says nothing unasked but that it ends.
func system(inner net.Conn) (syscall.RawConn, error) {
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
