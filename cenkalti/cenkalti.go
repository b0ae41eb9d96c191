// Package cenkalti lets retries follow a policy of github.com/cenkalti/backoff.
package cenkalti

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus"
)

// Delay returns a function for eventbus.Retry.Delay. The delay after attempt n is the n-th
// delay of a new policy. If the policy stops before that, its last delay is used, because
// only Retry.MaxAttempts ends retrying. Delay panics if policy is nil. policy is called
// from several goroutines.
func Delay(policy func() backoff.BackOff) func(*eventbus.Delivery, error) time.Duration {
	if policy == nil {
		panic("cenkalti: Delay needs a policy")
	}
	return func(d *eventbus.Delivery, _ error) time.Duration {
		p := policy()
		last := time.Duration(0)
		for range d.Attempt {
			next := p.NextBackOff()
			if next == backoff.Stop {
				break
			}
			last = next
		}
		return last
	}
}
