package eventbus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Retry says how often a failing event is tried, and when. Retries are durable,
// private to the group, and hold no place. Zero fields mean the default.
type Retry struct {
	// MaxAttempts is how often a handler may fail before the event goes to the
	// dead-letter topic. Default 12; -1: no limit.
	MaxAttempts int

	// Initial is the delay after the first failure; each further one doubles it,
	// up to Max. Defaults 1 s and 10 min, with 12 attempts about 27 minutes.
	Initial, Max time.Duration

	// Jitter spreads delays by up to this share either way. Default 0.2;
	// negative: none.
	Jitter float64

	// Delay, if set, says the delay after the given attempt (1 is the first) in
	// place of Initial, Max and Jitter. It is called from several goroutines.
	Delay func(attempt int) time.Duration
}

func (r Retry) withDefaults() Retry {
	setDefault(&r.MaxAttempts, 12)
	setDefault(&r.Initial, time.Second)
	setDefault(&r.Max, max(10*time.Minute, r.Initial))
	setDefault(&r.Jitter, 0.2)
	return r
}

func (r Retry) check() error {
	switch {
	case r.MaxAttempts < -1:
		return &FieldError{Field: "SubscribeOptions.Retry.MaxAttempts", Reason: "is below -1"}
	case r.Initial < 0:
		return &FieldError{Field: "SubscribeOptions.Retry.Initial", Reason: "is negative"}
	case r.Max < r.Initial:
		return &FieldError{Field: "SubscribeOptions.Retry.Max", Reason: fmt.Sprintf("is %v, less than Initial, %v", r.Max, r.Initial)}
	case r.Jitter > 1:
		return &FieldError{Field: "SubscribeOptions.Retry.Jitter", Reason: "is more than 1"}
	}
	return nil
}

// after is the delay after the given attempt.
func (r Retry) after(attempt int) time.Duration {
	if r.Delay != nil {
		return max(r.Delay(attempt), 0)
	}
	d := float64(r.Initial) * math.Pow(2, float64(max(attempt, 1)-1))
	d = min(d, float64(r.Max))
	if r.Jitter > 0 {
		d *= 1 + r.Jitter*(2*rand.Float64()-1)
	}
	return time.Duration(d)
}

// BackOff returns a Retry.Delay that follows a policy of cenkalti/backoff: the
// delay after attempt n is the n-th of a new policy. Where the policy says stop,
// its last delay stays; MaxAttempts is what ends retrying. It panics if policy is
// nil.
func BackOff(policy func() backoff.BackOff) func(attempt int) time.Duration {
	if policy == nil {
		panic("eventbus: BackOff needs a policy")
	}
	return func(attempt int) time.Duration {
		p := policy()
		last := time.Duration(0)
		for range attempt {
			next := p.NextBackOff()
			if next == backoff.Stop {
				break
			}
			last = next
		}
		return last
	}
}
