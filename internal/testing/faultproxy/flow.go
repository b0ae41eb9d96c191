package faultproxy

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"time"
)

const (
	chunkSize = 64 << 10
	maxLate   = 4 << 20 // with more delayed bytes, the reader waits
)

// flow carries one direction of a connection. Without faults it writes each read
// unchanged.
type flow struct {
	link     *link
	from, to net.Conn
	line     *line
	deaf     func() bool // reports whether to discard the bytes that were read

	late      []late // delayed bytes, in order
	lateBytes int
	hasLimit  bool // a read deadline is set for from
}

// late are bytes that must not arrive before due.
type late struct {
	bytes []byte
	due   time.Time
}

// run carries bytes until a read or write fails. It calls inspect with each chunk first,
// and carries the first pass bytes of the chunk. If last is true, run then writes the late
// bytes and ends.
func (f *flow) run(inspect func(chunk []byte) (pass int, last bool)) error {
	buf := make([]byte, chunkSize)
	for {
		n, err := f.read(buf)
		if n > 0 {
			f.line.bytes.Add(int64(n))
			pass, last := inspect(buf[:n])
			if sent := f.send(buf[:pass]); sent != nil {
				return sent
			}
			if last {
				return f.flush(false)
			}
		}
		if err != nil {
			if sent := f.flush(true); sent != nil {
				return sent
			}
			return err
		}
	}
}

// read reads like Read, and meanwhile writes the late bytes that are due.
func (f *flow) read(buf []byte) (int, error) {
	for len(f.late) > 0 {
		if due := f.late[0].due; f.lateBytes < maxLate {
			f.hasLimit = true
			_ = f.from.SetReadDeadline(due)
			if n, err := f.from.Read(buf); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				return n, err
			}
		} else if !wait(f.link.done, time.Until(due)) {
			return 0, net.ErrClosed
		}
		if err := f.writeLate(); err != nil {
			return 0, err
		}
	}
	if f.hasLimit {
		f.hasLimit = false
		_ = f.from.SetReadDeadline(time.Time{})
	}
	return f.from.Read(buf)
}

// send writes chunk, or keeps a copy until it is due.
func (f *flow) send(chunk []byte) error {
	delay := time.Duration(f.link.proxy.delay.Load())
	if delay <= 0 && len(f.late) == 0 {
		return f.write(chunk)
	}
	if len(chunk) == 0 {
		return nil
	}
	if jitter := f.link.proxy.jitter.Load(); jitter > 0 {
		delay += time.Duration(rand.Int64N(2*jitter+1) - jitter)
	}
	due := time.Now().Add(delay)
	if n := len(f.late); n > 0 && due.Before(f.late[n-1].due) {
		due = f.late[n-1].due
	}
	f.late = append(f.late, late{bytes: append([]byte(nil), chunk...), due: due})
	f.lateBytes += len(chunk)
	return nil
}

// flush writes the late bytes: each when it is due if inTime is set, and otherwise without
// waiting.
func (f *flow) flush(inTime bool) error {
	for len(f.late) > 0 {
		if inTime && !wait(f.link.done, time.Until(f.late[0].due)) {
			return net.ErrClosed
		}
		if err := f.writeLate(); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) writeLate() error {
	l := f.late[0]
	f.late[0] = late{}
	f.late = f.late[1:]
	f.lateBytes -= len(l.bytes)
	return f.write(l.bytes)
}

// write writes chunk, at the line's rate at most, and waits while the proxy is frozen.
func (f *flow) write(chunk []byte) error {
	for len(chunk) > 0 {
		piece := chunk[:f.line.piece(len(chunk))]
		if !wait(f.link.done, f.line.reserve(len(piece))) || !f.link.proxy.pass(f.link.done) {
			return net.ErrClosed
		}
		chunk = chunk[len(piece):]
		if f.deaf() {
			continue
		}
		if _, err := f.to.Write(piece); err != nil {
			return err
		}
	}
	return nil
}
