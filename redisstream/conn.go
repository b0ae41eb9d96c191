package redisstream

import (
	"context"
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

// A deadConn stands for a connection that could not be made. Its first use fails with the
// error of the dial. go-redis would write a failed dial to the logger of the whole process.
// After some failed dials it would also refuse to dial for up to a second.
type deadConn struct {
	net.Conn // nil
	err      error
}

// quietly returns a function that dials by dial, and returns a deadConn in place of an error.
func quietly(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return deadConn{err: err}, nil //nolint:nilerr // the connection returns it
		}
		return c, nil
	}
}

func (c deadConn) Read([]byte) (int, error)         { return 0, c.err }
func (c deadConn) Write([]byte) (int, error)        { return 0, c.err }
func (c deadConn) Close() error                     { return nil }
func (c deadConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c deadConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c deadConn) SetDeadline(time.Time) error      { return nil }
func (c deadConn) SetReadDeadline(time.Time) error  { return nil }
func (c deadConn) SetWriteDeadline(time.Time) error { return nil }

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
