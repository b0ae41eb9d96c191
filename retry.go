package eventbus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed41896749/eventbus/internal/engine"
)

// Retry says how often a failing event is tried, and when. Retries are durable and
// private to the group. An event that waits for its retry is not in flight, if the
// backend can give events back for free (Limits.Refund). Zero fields mean the default.
type Retry struct {
	// MaxAttempts is how often a handler may fail before the event goes to the
	// dead-letter topic. Default 12; -1: no limit.
	MaxAttempts int

	// Initial is the delay after the first failure. Each further failure doubles the
	// delay, up to Max. Defaults 1 s and 10 min: 12 attempts take about 27 minutes.
	Initial, Max time.Duration

	// Jitter spreads delays by up to this share either way. Default 0.2;
	// negative: none.
	Jitter float64

	// Delay, if set, returns the delay after a failed attempt, in place of Initial, Max
	// and Jitter: d.Attempt of d has failed with err. It is called from several
	// goroutines. If it panics the delay is one second.
	Delay func(d *Delivery, err error) time.Duration
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

// after is the delay after the attempt h has failed with err.
func (r Retry) after(h *engine.Hold, err error) time.Duration {
	if r.Delay != nil {
		return max(r.Delay(delivery(h), err), 0)
	}
	return r.exponential(h.Attempt())
}

// exponential is the delay after the given attempt without a Delay.
func (r Retry) exponential(attempt int) time.Duration {
	d := float64(r.Initial) * math.Pow(2, float64(max(attempt, 1)-1))
	d = min(d, float64(r.Max))
	if r.Jitter > 0 {
		d *= 1 + r.Jitter*(2*rand.Float64()-1)
	}
	return time.Duration(d)
}
