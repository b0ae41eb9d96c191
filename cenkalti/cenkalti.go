// Package cenkalti lets you use a policy of github.com/cenkalti/backoff for retries.
package cenkalti

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus"
)

// Delay returns a function for eventbus.Retry.Delay. After each failed attempt it calls policy for
// a new policy; the delay after attempt n is that policy's n-th delay. If the policy stops earlier,
// its last delay is used, because only Retry.MaxAttempts ends the retries. policy is called
// concurrently. Delay panics if policy is nil.
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
