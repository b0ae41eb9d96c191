//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || illumos

package redisstream

import (
	"errors"
	"syscall"
)

// A probe looks whether anything has come on a connection that nobody asked for:
// its end, above all.
type probe struct {
	raw   syscall.RawConn
	look  func(fd uintptr) bool // peek, made once
	buf   [1]byte
	quiet bool
}

func newProbe(raw syscall.RawConn) *probe {
	p := &probe{raw: raw}
	p.look = p.peek
	return p
}

// nothing reports whether nothing has come. The connection's deadline for reading
// is in the future.
func (p *probe) nothing() bool {
	p.quiet = false
	return p.raw.Read(p.look) == nil && p.quiet
}

func (p *probe) peek(fd uintptr) bool {
	_, _, err := syscall.Recvfrom(int(fd), p.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	p.quiet = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK)
	return true
}
