package engine

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/publish"
)

// WhenFull is [publish.WhenFull].
type WhenFull = publish.WhenFull

func newPublisher(b backend.Backend, o Options) *publish.Publisher {
	return publish.New(b, publish.Options{
		Timeout:         o.PublishTimeout,
		MaxPending:      o.MaxPending,
		MaxPendingBytes: o.MaxPendingBytes,
		WhenFull:        o.WhenFull,
		NewBackoff:      newBackoff,
	})
}

// newBackoff returns the waits after failed calls of a broker. The waits double from 100 ms
// to 5 s. Each wait is multiplied by a random factor between 0.5 and 1.5.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)
}
