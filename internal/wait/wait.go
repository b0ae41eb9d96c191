// Package wait provides the ways in which the bus waits: a sleep that a context can end, the
// back-off between repeated calls, a recovery that ends the back-off of all callers at once, and a
// queue that admits callers in order.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep waits for d. It returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A Backoff returns the delays between the repetitions of a failing call. They double from First to
// Max, and each is multiplied by a random factor between 0.5 and 1.5, so that callers that failed
// together don't all repeat their calls at the same time. It is not safe for concurrent use.
type Backoff struct {
	First, Max time.Duration
	failures   int
}

// Broker returns the back-off for calls to a broker, from 100 ms to a second.
func Broker() Backoff { return Backoff{First: 100 * time.Millisecond, Max: time.Second} }

// Next returns the delay before the next repetition.
func (b *Backoff) Next() time.Duration {
	d := Doubled(b.First, b.Max, b.failures)
	b.failures++
	return Jittered(d)
}

// Reset starts over with First. Call it after a call that succeeded.
func (b *Backoff) Reset() { b.failures = 0 }

// Doubled returns first doubled n times, but at most highest. It is for callers that count failures
// themselves, because they keep a count for each event.
func Doubled(first, highest time.Duration, n int) time.Duration {
	if n >= 63 || first > highest>>n {
		return highest
	}
	return first << n
}

// Jittered returns d, multiplied by a random factor between 0.5 and 1.5.
func Jittered(d time.Duration) time.Duration { return d/2 + rand.N(max(d, 1)) }
