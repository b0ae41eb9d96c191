package redisstream

import (
	"net"
	"syscall"
	"time"
)

// A conn is a connection of a wire. It notes that a command was written. It gives each
// piece of a command or an answer a deadline of its own, because a slow line does not mean
// that the server hangs.
type conn struct {
	net.Conn
	wire   *wire
	number int64 // see wire.greeted
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && err == nil {
		err = c.SetReadDeadline(time.Now().Add(c.wire.wait))
	}
	return n, err
}

const maxWrite = 256 << 10 // bytes of one write

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (n int, err error) {
	if c.number <= c.wire.greeted.Load() {
		c.wire.fate.Store(sent)
	}
	for n < len(p) && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(c.wire.wait)); err == nil {
			var k int
			k, err = c.Conn.Write(p[n:min(n+maxWrite, len(p))])
			n += k
		}
	}
	return n, err
}

// A checkedConn shows go-redis the connection of the operating system. go-redis looks there
// whether the server has closed a connection, before it writes to it.
type checkedConn struct {
	net.Conn
	system syscall.Conn
}

// SyscallConn implements [syscall.Conn].
func (c checkedConn) SyscallConn() (syscall.RawConn, error) { return c.system.SyscallConn() }

// checked returns outer as a checkedConn, if inner has a connection of the operating system.
// For TLS this is the connection below. go-redis may look at it, because a server sends no
// data unasked.
func checked(outer, inner net.Conn) net.Conn {
	const maxLayers = 8
	for range maxLayers {
		if system, ok := inner.(syscall.Conn); ok {
			return checkedConn{outer, system}
		}
		layer, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = layer.NetConn()
	}
	return outer
}
