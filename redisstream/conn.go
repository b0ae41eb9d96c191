package redisstream

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A conn is a connection that its wire can close at any moment. go-redis itself checks only
// deadlines, and only at the beginning of a call.
type conn struct {
	net.Conn
	wire   *wire
	ready  atomic.Bool // greeting and authentication are done, so later writes are commands
	id     int64       // the connection's id at the server, 0 if not known; set before ready
	closed atomic.Bool
}

// Read implements [net.Conn]. After each piece of an answer it sets a new deadline, because
// a slow line does not mean that the server hangs.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && err == nil {
		err = c.SetReadDeadline(time.Now().Add(c.wire.wait))
	}
	return n, err
}

const maxWrite = 256 << 10 // bytes of one write; each write has a deadline of its own

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

// Close implements [net.Conn]. Closing twice is no error, because the wire and go-redis
// may both close it.
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

// SyscallConn implements [syscall.Conn]. go-redis uses it to detect that a connection was
// closed before it writes to the connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	return system(c.Conn)
}

// system returns the raw connection of the operating system. For a TLS connection it
// returns the one below TLS. go-redis may test that one for a closed connection, because a
// server sends no data unasked.
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

// noSyscalls is a raw connection that always seems open. It stands for a connection that
// has no raw connection of the operating system.
type noSyscalls struct{}

func (noSyscalls) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (noSyscalls) Read(func(uintptr) bool) error  { return nil }
func (noSyscalls) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
