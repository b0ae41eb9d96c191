package eventbus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/internal/engine"
)

// Retry says how often a failing event is tried, and when. Retries are durable, and concern
// only the group whose handler failed. If the backend has Limits.Refund, an event that
// waits for its retry is not in flight. A zero field means its default.
//
// A redelivered event waits 10 ms at least, and 10 ms more for each repeat, up to 50 ms. So a
// handler that asks for no delay does not keep a processor or the broker busy. The verdict on
// an event that has failed for good is final: until its dead letter can be stored, the bus
// repeats the call that stores it, and not the run.
type Retry struct {
	// MaxAttempts is how often a handler may fail before the event goes to the
	// dead-letter topic. Default 12; -1: no limit.
	MaxAttempts int

	// Initial is the delay after the first failure. Each further failure doubles the
	// delay, up to Max. Defaults 1 s and 10 min, so that 12 attempts take about 27
	// minutes. With a longer Initial, Max defaults to Initial.
	Initial, Max time.Duration

	// Jitter changes each delay at random, by up to this fraction of the delay. Default
	// 0.2; at most 1; negative: none.
	Jitter float64

	// Delay, if set, returns the delay after a failed attempt, in place of Initial, Max
	// and Jitter. The attempt with the number d.Attempt has failed with err. Delay is
	// called from several goroutines. If it panics the delay is one second.
	Delay func(d *Delivery, err error) time.Duration

	// Rules change the retry after errors of a class. A class has at most one rule.
	Rules []RetryRule
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
	for i, rule := range r.Rules {
		field := fmt.Sprintf("SubscribeOptions.Retry.Rules[%d]", i)
		if rule.Class == "" {
			return &FieldError{Field: field + ".Class", Reason: "is empty"}
		}
		if slices.ContainsFunc(r.Rules[:i], func(other RetryRule) bool { return other.Class == rule.Class }) {
			return &FieldError{Field: field + ".Class", Reason: "is " + rule.Class + ", which has a rule already"}
		}
		if err := rule.check(field); err != nil {
			return err
		}
	}
	return nil
}

// policy returns r in the form that the engine takes.
func (r Retry) policy(group string, classes []ErrorClass) engine.Policy {
	r.Rules = slices.Clone(r.Rules) // the program may change its slice
	p := engine.Policy{
		MaxAttempts: max(r.MaxAttempts, 0),
		Class:       func(err error) string { return classOf(err, classes) },
		OwnAttempts: func(h *engine.Hold) (int, bool) {
			own := delivery(group, h).Retry
			return max(r.with(orNone(own)).MaxAttempts, 0), own != nil
		},
	}
	for _, rule := range r.Rules {
		if most := r.with(rule).MaxAttempts; most < 0 {
			p.MaxAttempts = 0
		} else if p.MaxAttempts > 0 {
			p.MaxAttempts = max(p.MaxAttempts, most)
		}
	}
	p.Plan = func(h *engine.Hold, err error, plan *engine.Plan) {
		d := delivery(group, h)
		own := orNone(d.Retry)
		now := r.with(own)
		d.MaxAttempts = max(now.MaxAttempts, 0)
		plan.MaxAttempts, plan.Discard = d.MaxAttempts, own.Discard
		if len(r.Rules) > 0 {
			rule := r.ruleOf(p.Class(err))
			now = now.with(rule)
			plan.MaxAttempts, plan.Discard = max(now.MaxAttempts, 0), own.Discard || rule.Discard
		}
		plan.After = now.after(d, err)
	}
	return p
}

// ruleOf returns the rule of Rules for a class of errors; the zero rule if there is none.
func (r Retry) ruleOf(class string) RetryRule {
	if i := slices.IndexFunc(r.Rules, func(rule RetryRule) bool { return rule.Class == class }); i >= 0 {
		return r.Rules[i]
	}
	return RetryRule{}
}

// after returns the delay before the retry of d, whose attempt has failed with err.
func (r Retry) after(d *Delivery, err error) time.Duration {
	if r.Delay != nil {
		return max(r.Delay(d, err), 0)
	}
	return r.exponential(d.Attempt)
}

// exponential returns the delay after a failed attempt, computed from Initial, Max and
// Jitter.
func (r Retry) exponential(attempt int) time.Duration {
	d := float64(r.Initial) * math.Pow(2, float64(max(attempt, 1)-1))
	d = min(d, float64(r.Max))
	if r.Jitter > 0 {
		d *= 1 + r.Jitter*(2*rand.Float64()-1)
	}
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}
