package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// line is one direction of all connections: what has passed, and how fast it may.
type line struct {
	bytes atomic.Int64
	rate  atomic.Int64 // bytes per second; 0 for no limit

	mu   sync.Mutex
	free time.Time // when the line is free for the next bytes
}

// piece says how many of n bytes may go at once: a twentieth of a second's worth.
func (l *line) piece(n int) int {
	if rate := l.rate.Load(); rate > 0 {
		return min(n, max(1, int(rate/20)))
	}
	return n
}

// reserve says how long to wait until n bytes have passed the line.
func (l *line) reserve(n int) time.Duration {
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

// wait returns after d; false if done was closed before.
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
