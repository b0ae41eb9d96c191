package cenkalti_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cenkalti"
)

func TestDelayFollowsThePolicy(t *testing.T) {
	delay := cenkalti.Delay(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(time.Second), backoff.WithMultiplier(3), backoff.WithRandomizationFactor(0)), 3)
	})
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 3 * time.Second, 3: 9 * time.Second, 9: 9 * time.Second} {
		require.Equal(t, want, delay(&eventbus.Delivery{Attempt: attempt}, errors.New("no")), "attempt %d", attempt)
	}
}

func TestDelayNeedsAPolicy(t *testing.T) {
	require.Panics(t, func() { cenkalti.Delay(nil) })
}
