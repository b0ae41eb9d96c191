package config

import (
	"cmp"
	"fmt"
	"math"

	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/limiter/rate"
)

// limits are the keys that limit the reads and runs of a subscription. Each is optional.
type limits struct {
	Rate        rateValue `key:"rate" example:"100/s" doc:"How many events all members of the subscription in this program may read per unit of time."`
	Burst       number    `key:"burst" min:"1" example:"20" doc:"How many of them may be read at once. Default: one second's worth, at least 1."`
	RateOf      text      `key:"rate_of" example:"billing" doc:"The name of another subscription in this file, whose rate the two share."`
	Redelivered number    `key:"redelivered" min:"1" option:"SubscribeOptions.MaxRedelivered" example:"4" doc:"How many handlers may run redelivered events at once, leaving the others for new events. Must be less than concurrency (times batch.size, with a batch). Default: no limit."`
	Adaptive    adaptive  `key:"adaptive" doc:"Adapts the number of held events to the run time and failures of handlers."`
	Breaker     breaker   `key:"breaker" doc:"Stops reading for a while after many handlers have failed."`
}

type adaptive struct {
	Min number `key:"min" default:"1" min:"1" doc:"The lower limit for held events."`
	Max number `key:"max" required:"true" min:"1" example:"64" doc:"The upper limit for held events. Set concurrency to the same number of handlers."`
}

type breaker struct {
	Failures percent  `key:"failures" required:"true" example:"50%" doc:"The share of failed runs that opens the breaker."`
	Window   duration `key:"window" default:"10s" min:"1ms" doc:"The time over which runs are counted."`
	Runs     number   `key:"runs" default:"10" min:"1" doc:"The minimum number of runs in the window before the breaker can open."`
	Pause    duration `key:"pause" default:"30s" min:"1ms" doc:"How long an open breaker stops reading."`
	Trials   number   `key:"trials" default:"1" min:"1" doc:"How many events may be read after a pause, and how many runs must then succeed for the breaker to close."`
}

// newLimiter returns a limiter that joins the limits that the file sets for a subscription, or
// nil if it sets none. Each subscription has one rate, which its members in this program and
// other subscriptions share. The caller holds c.mu.
func (c *Config) newLimiter(name string) limiter.Limiter {
	l := c.bus.Subscriptions[name].Limits
	var given []limiter.Limiter
	if l.Adaptive.Max > 0 {
		given = append(given, limiter.NewAdaptive(l.Adaptive.minHeld(), int(l.Adaptive.Max)))
	}
	if rated := cmp.Or(string(l.RateOf), name); c.bus.Subscriptions[rated].Limits.Rate > 0 {
		if c.rates[rated] == nil {
			of := c.bus.Subscriptions[rated].Limits
			c.rates[rated] = rate.New(float64(of.Rate), of.burst())
		}
		given = append(given, c.rates[rated])
	}
	if l.Breaker.Failures > 0 { // last, because it may open while a read waits for the limiters before it
		given = append(given, limiter.NewBreaker(limiter.BreakerOptions{
			Failures: float64(l.Breaker.Failures), Window: l.Breaker.Window.value(), Runs: int(l.Breaker.Runs),
			Pause: l.Breaker.Pause.value(), Trials: int(l.Breaker.Trials),
		}))
	}
	if given == nil {
		return nil
	}
	return limiter.All(given...)
}

func (l *limits) burst() int {
	if l.Burst > 0 {
		return int(l.Burst)
	}
	return int(max(math.Ceil(float64(l.Rate)), 1))
}

func (a adaptive) minHeld() int { return max(int(a.Min), 1) }

// contradiction returns the key of a limit that contradicts another limit of the subscriptions,
// and the reason. It returns "" if there is no contradiction. A broken subscription has an
// error already, so its rate may be missing.
func (l *limits) contradiction(all map[string]subscription, broken func(name string) bool) (key, reason string) {
	switch {
	case l.RateOf != "" && l.Rate > 0:
		return "rate_of", "is given beside a rate"
	case l.RateOf != "" && all[string(l.RateOf)].Limits.Rate == 0 && !broken(string(l.RateOf)):
		return "rate_of", "is no subscription with a rate" // without the value, which may be of a variable
	case l.Burst > 0 && l.Rate == 0:
		return "burst", "is given without a rate"
	case l.Adaptive.Max > 0 && l.Adaptive.Max < l.Adaptive.Min:
		return "adaptive.max", "is less than min"
	}
	return "", ""
}

// describe explains the limits in words.
func (l *limits) describe() (parts []string) {
	if l.Rate > 0 {
		parts = append(parts, fmt.Sprintf("at most %.6g events a second are read, %s at once", float64(l.Rate), groupThousands(l.burst())))
	}
	if l.RateOf != "" {
		parts = append(parts, "reads at the rate of "+string(l.RateOf)+", which shares it")
	}
	if l.Redelivered > 0 {
		parts = append(parts, fmt.Sprintf("at most %s redelivered at a time", groupThousands(int(l.Redelivered))))
	}
	if l.Adaptive.Max > 0 {
		parts = append(parts, fmt.Sprintf("%s to %s events held, fewer while runs fail or take longer", groupThousands(l.Adaptive.minHeld()), groupThousands(int(l.Adaptive.Max))))
	}
	if l.Breaker.Failures > 0 {
		o := limiter.BreakerOptions{Window: l.Breaker.Window.value(), Runs: int(l.Breaker.Runs), Pause: l.Breaker.Pause.value()}.Effective()
		parts = append(parts, fmt.Sprintf("nothing is read for %s when %.6g%% of at least %s runs within %s fail",
			roundDuration(o.Pause), 100*float64(l.Breaker.Failures), groupThousands(o.Runs), roundDuration(o.Window)))
	}
	return parts
}
