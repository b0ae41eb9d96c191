package faultproxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// line is one direction of all connections: its counter and its rate limit.
type line struct {
	bytes atomic.Int64
	rate  atomic.Int64 // bytes per second; 0 for no limit

	mu   sync.Mutex
	free time.Time // when the line is free for the next bytes
}

// piece returns how many of n bytes the next write takes: as many as the rate lets pass in
// 50 ms.
func (l *line) piece(n int) int {
	if rate := l.rate.Load(); rate > 0 {
		return min(n, max(1, int(rate/20)))
	}
	return n
}

// reserve reserves the line for n bytes and returns how long to wait before their write.
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
