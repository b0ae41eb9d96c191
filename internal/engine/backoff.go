package engine

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// newBackoff returns the waits after failed calls of a broker. The waits double from 100 ms
// to 1 s. Each wait is multiplied by a random factor between 0.5 and 1.5.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(maxRetry),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
