package faultproxy

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 64 << 10
	maxLate   = 4 << 20 // with more delayed bytes, the reader waits
)

// flow carries one direction of a connection. Without faults it writes each read
// unchanged.
type flow struct {
	link      *link
	from, to  net.Conn
	direction *direction
	deaf      func() bool // reports whether to discard the bytes that were read

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
			f.direction.bytes.Add(int64(n))
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

// write writes chunk, at the direction's rate at most, and waits while the proxy is frozen.
func (f *flow) write(chunk []byte) error {
	for len(chunk) > 0 {
		piece := chunk[:f.direction.piece(len(chunk))]
		if !wait(f.link.done, f.direction.reserve(len(piece))) || !f.link.proxy.pass(f.link.done) {
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

// direction is one direction of all connections: its counter and its rate limit.
type direction struct {
	bytes atomic.Int64
	rate  atomic.Int64 // bytes per second; 0 for no limit

	mu   sync.Mutex
	free time.Time // when the direction is free for the next bytes
}

// piece returns how many of n bytes the next write takes: as many as the rate lets pass in
// 50 ms.
func (l *direction) piece(n int) int {
	if rate := l.rate.Load(); rate > 0 {
		return min(n, max(1, int(rate/20)))
	}
	return n
}

// reserve reserves the direction for n bytes and returns how long to wait before their write.
func (l *direction) reserve(n int) time.Duration {
	rate := l.rate.Load()
	if rate <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return l.free.Sub(now)
}

// wait waits for d; it returns false if done was closed first.
func wait(done <-chan struct{}, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
