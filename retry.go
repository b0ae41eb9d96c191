package eventbus

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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

// A RetryRule changes a [Retry]. A rule of Retry.Rules is for the errors of a class. The
// rule Event.Retry is for one event. If both rules set a field, the rule of Retry.Rules
// decides. A zero field changes nothing.
type RetryRule struct {
	// Class is the name of one of Options.ErrorClasses, or "panic" or "timeout". It must
	// be empty in Event.Retry.
	Class string

	// MaxAttempts is like Retry.MaxAttempts, and counts failures of all classes; 1: no second
	// attempt. The reason in the dead letter is ReasonExhausted. Delivery.MaxAttempts and LastAttempt do not know the rule of a class, because the
	// error is not known before the run.
	MaxAttempts int

	Initial, Max time.Duration // like Retry.Initial and Retry.Max, with Retry.Jitter; if one is set, Retry.Delay is not called

	// Discard discards the event after its last attempt, instead of storing a dead letter.
	// Nevertheless, after an error marked by Permanent the event goes to the dead-letter
	// topic. For a discarded event OnDeadLetter is not called, and FailAll does nothing.
	Discard bool
}

// An ErrorClass gives a name to some errors of handlers. RetryRule.Class and
// DeadLetter.ErrorClass contain the name.
type ErrorClass struct {
	Name string
	Is   func(error) bool // such as: errors.Is(err, ErrCardDeclined)
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

func (r *RetryRule) check(field string) error {
	switch {
	case r.MaxAttempts < -1:
		return &FieldError{Field: field + ".MaxAttempts", Reason: "is below -1"}
	case r.Initial < 0:
		return &FieldError{Field: field + ".Initial", Reason: "is negative"}
	case r.Max < 0 || r.Max > 0 && r.Max < r.Initial:
		return &FieldError{Field: field + ".Max", Reason: fmt.Sprintf("is %v, less than Initial, %v", r.Max, r.Initial)}
	}
	return nil
}

// checkRules refuses rules of unknown classes.
func (r Retry) checkRules(classes []ErrorClass) error {
	for i, rule := range r.Rules {
		known := slices.Contains(knownClasses, rule.Class) ||
			slices.ContainsFunc(classes, func(c ErrorClass) bool { return c.Name == rule.Class })
		if !known {
			return &FieldError{
				Field:  fmt.Sprintf("SubscribeOptions.Retry.Rules[%d].Class", i),
				Reason: "is " + rule.Class + ", which is none of Options.ErrorClasses",
			}
		}
	}
	return nil
}

// knownClasses are the names that RetryRule.Class may have without an ErrorClass.
var knownClasses = []string{"panic", "timeout"}

// checkClasses returns an error that says why New refuses classes.
func checkClasses(classes []ErrorClass) error {
	for i, c := range classes {
		field := fmt.Sprintf("Options.ErrorClasses[%d]", i)
		switch {
		case c.Name == "" || slices.Contains(knownClasses, c.Name):
			return &FieldError{Field: field + ".Name", Reason: fmt.Sprintf("is %q", c.Name)}
		case slices.ContainsFunc(classes[:i], func(other ErrorClass) bool { return other.Name == c.Name }):
			return &FieldError{Field: field + ".Name", Reason: "is " + c.Name + ", which is there already"}
		case c.Is == nil:
			return &FieldError{Field: field + ".Is", Reason: "is nil"}
		}
		if err := checkText(field+".Name", c.Name); err != nil {
			return err
		}
	}
	return nil
}

// classOf returns the name of the first of classes that matches err. If none matches, it
// returns the engine's name for err, see [Options].ErrorClasses.
func classOf(err error, classes []ErrorClass) string {
	for _, c := range classes {
		if c.Is(err) {
			return c.Name
		}
	}
	return engine.ErrorClass(err)
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

// with returns r with the changes that rule makes.
func (r Retry) with(rule RetryRule) Retry {
	if rule.MaxAttempts != 0 {
		r.MaxAttempts = rule.MaxAttempts
	}
	if rule.Initial > 0 || rule.Max > 0 {
		r.Delay = nil
		r.Initial, r.Max = cmp.Or(rule.Initial, min(r.Initial, rule.Max)), cmp.Or(rule.Max, max(r.Max, rule.Initial))
	}
	return r
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

// checkOwn returns an error that says why Publish refuses r as Event.Retry, or nil.
func (r *RetryRule) checkOwn() error {
	switch {
	case r == nil:
		return nil
	case r.Class != "":
		return &FieldError{Field: "Retry.Class", Reason: "is set, but the rule is for every error of the event"}
	}
	return r.check("Retry")
}

// leastAttempts returns the least of the MaxAttempts above 1 in rules; 0: there is none. From
// this attempt on one more failure may be the last of an event, so an event is then handled
// in a batch of its own.
func leastAttempts(rules []RetryRule) (least int) {
	for _, r := range rules {
		if r.MaxAttempts > 1 && (least == 0 || r.MaxAttempts < least) {
			least = r.MaxAttempts
		}
	}
	return least
}

func orNone(r *RetryRule) RetryRule {
	if r == nil {
		return RetryRule{}
	}
	return *r
}

// text returns r as the header that stores it, such as "attempts=5 initial=1s discard=true".
func (r *RetryRule) text() string {
	var parts []string
	add := func(name string, value any, set bool) {
		if set {
			parts = append(parts, fmt.Sprint(name, "=", value))
		}
	}
	add("attempts", r.MaxAttempts, r.MaxAttempts != 0)
	add("initial", r.Initial, r.Initial != 0)
	add("max", r.Max, r.Max != 0)
	add("discard", r.Discard, r.Discard)
	return strings.Join(parts, " ")
}

// readRule returns the rule that text, made by [RetryRule].text, describes. It ignores
// parts that it does not know or cannot read, and returns nil for a contradictory rule. So
// an event is never refused for its rule.
func readRule(text string) *RetryRule {
	r := &RetryRule{}
	for part := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "attempts":
			parse(&r.MaxAttempts, value, strconv.Atoi)
		case "initial":
			parse(&r.Initial, value, time.ParseDuration)
		case "max":
			parse(&r.Max, value, time.ParseDuration)
		case "discard":
			parse(&r.Discard, value, strconv.ParseBool)
		}
	}
	if r.check("") != nil {
		return nil
	}
	return r
}

// parse sets field to the value that read returns for text. If read fails, field is
// unchanged.
func parse[T any](field *T, text string, read func(string) (T, error)) {
	if v, err := read(text); err == nil {
		*field = v
	}
}
