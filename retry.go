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

// Retry says how often and when a failed event is tried again. Retries are durable, and concern
// only the group whose handler failed. If the backend has Limits.Refund, an event that waits for
// its retry does not count as in flight. A zero field means its default.
//
// Even without a delay, a redelivered event waits for at least 10 ms, and 10 ms more for each
// repeat, up to 50 ms, so that a handler that asks for no delay does not keep a processor or the
// broker busy. Once an event has failed for good, its handler is not called again: if the dead
// letter cannot be stored, the bus repeats only that.
type Retry struct {
	// MaxAttempts is how often the handler may fail before the event goes to the dead-letter
	// topic. Default 12; -1: no limit.
	MaxAttempts int

	// Initial is the delay after the first failure. It doubles with each further failure, up to
	// Max. Defaults: 1 s and 10 min, with which 12 attempts take about 27 minutes. If Initial is
	// longer than the default of Max, Max defaults to Initial.
	Initial, Max time.Duration

	// Jitter varies each delay at random by up to this fraction. Default 0.2; at most 1;
	// negative: none.
	Jitter float64

	// Delay, if set, returns the delay after a failed attempt, instead of Initial, Max and
	// Jitter. Attempt d.Attempt has failed with err. Delay may be called from several goroutines.
	// If it panics, the delay is one second.
	Delay func(d *Delivery, err error) time.Duration

	// Rules change the retries for classes of errors. There is at most one rule for each class.
	Rules []RetryRule
}

// A RetryRule changes a [Retry]: in Retry.Rules for the errors of a class, and in Event.Retry for
// one event. If both set a field, the one in Retry.Rules wins. A zero field changes nothing.
type RetryRule struct {
	// Class is the name of one of Options.ErrorClasses, or "panic" or "timeout". It must be empty
	// in Event.Retry.
	Class string

	// MaxAttempts is like Retry.MaxAttempts. It counts failures of all classes; 1 means no retry.
	// The reason in the dead letter is ReasonExhausted. Delivery.MaxAttempts and LastAttempt do
	// not reflect the rule of a class, because the error is not known before the run.
	MaxAttempts int

	// Initial and Max are like those of Retry, and are subject to Retry.Jitter. If one of them is
	// set, Retry.Delay is not called.
	Initial, Max time.Duration

	// Discard discards the event after its last attempt instead of storing a dead letter.
	// OnDeadLetter is then not called, and FailAll has no effect. An error marked by Permanent
	// still sends the event to the dead-letter topic.
	Discard bool
}

// An ErrorClass names some of the errors that handlers return. RetryRule.Class and
// DeadLetter.ErrorClass hold the name.
type ErrorClass struct {
	Name string
	Is   func(error) bool // for example, errors.Is(err, ErrCardDeclined)
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
		return &FieldError{Field: "SubscribeOptions.Retry.MaxAttempts", Reason: "is less than -1"}
	case r.Initial < 0:
		return &FieldError{Field: "SubscribeOptions.Retry.Initial", Reason: "is negative"}
	case r.Max < r.Initial:
		return &FieldError{Field: "SubscribeOptions.Retry.Max", Reason: fmt.Sprintf("is %v, less than Initial, %v", r.Max, r.Initial)}
	case r.Jitter > 1:
		return &FieldError{Field: "SubscribeOptions.Retry.Jitter", Reason: "is greater than 1"}
	}
	for i, rule := range r.Rules {
		field := fmt.Sprintf("SubscribeOptions.Retry.Rules[%d]", i)
		if rule.Class == "" {
			return &FieldError{Field: field + ".Class", Reason: "is empty"}
		}
		if slices.ContainsFunc(r.Rules[:i], func(other RetryRule) bool { return other.Class == rule.Class }) {
			return &FieldError{Field: field + ".Class", Reason: "is " + rule.Class + ", which already has a rule"}
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
		return &FieldError{Field: field + ".MaxAttempts", Reason: "is less than -1"}
	case r.Initial < 0:
		return &FieldError{Field: field + ".Initial", Reason: "is negative"}
	case r.Max < 0 || r.Max > 0 && r.Max < r.Initial:
		return &FieldError{Field: field + ".Max", Reason: fmt.Sprintf("is %v, less than Initial, %v", r.Max, r.Initial)}
	}
	return nil
}

// checkRules refuses rules for unknown classes.
func (r Retry) checkRules(classes []ErrorClass) error {
	for i, rule := range r.Rules {
		known := slices.Contains(knownClasses, rule.Class) ||
			slices.ContainsFunc(classes, func(c ErrorClass) bool { return c.Name == rule.Class })
		if !known {
			return &FieldError{
				Field:  fmt.Sprintf("SubscribeOptions.Retry.Rules[%d].Class", i),
				Reason: "is " + rule.Class + ", which is not one of Options.ErrorClasses",
			}
		}
	}
	return nil
}

// knownClasses are the classes that exist without an ErrorClass.
var knownClasses = []string{"panic", "timeout"}

// checkClasses returns the error with which New refuses classes, or nil.
func checkClasses(classes []ErrorClass) error {
	for i, c := range classes {
		field := fmt.Sprintf("Options.ErrorClasses[%d]", i)
		switch {
		case c.Name == "" || slices.Contains(knownClasses, c.Name):
			return &FieldError{Field: field + ".Name", Reason: fmt.Sprintf("is %q", c.Name)}
		case slices.ContainsFunc(classes[:i], func(other ErrorClass) bool { return other.Name == c.Name }):
			return &FieldError{Field: field + ".Name", Reason: "is " + c.Name + ", which is already defined"}
		case c.Is == nil:
			return &FieldError{Field: field + ".Is", Reason: "is nil"}
		}
		if err := checkText(field+".Name", c.Name); err != nil {
			return err
		}
	}
	return nil
}

// classOf returns the name of the first class that matches err, or the engine's name for err if
// none does; see [Options].ErrorClasses.
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
			return max(r.with(ruleOrZero(own)).MaxAttempts, 0), own != nil
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
		own := ruleOrZero(d.Retry)
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

// ruleOf returns the rule for a class of errors, or the zero rule.
func (r Retry) ruleOf(class string) RetryRule {
	if i := slices.IndexFunc(r.Rules, func(rule RetryRule) bool { return rule.Class == class }); i >= 0 {
		return r.Rules[i]
	}
	return RetryRule{}
}

// with returns r as changed by rule.
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

// after returns the delay before the next attempt of d, whose last attempt has failed with err.
func (r Retry) after(d *Delivery, err error) time.Duration {
	if r.Delay != nil {
		return max(r.Delay(d, err), 0)
	}
	return r.exponential(d.Attempt)
}

// exponential returns the delay after a failed attempt by Initial, Max and Jitter.
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

// checkOwn returns the error with which Publish refuses r as Event.Retry, or nil.
func (r *RetryRule) checkOwn() error {
	switch {
	case r == nil:
		return nil
	case r.Class != "":
		return &FieldError{Field: "Retry.Class", Reason: "is set, but the rule applies to every error of the event"}
	}
	return r.check("Retry")
}

// leastAttempts returns the smallest MaxAttempts above 1 in rules, or 0 if there is none. From
// this attempt on, another failure may be the last one of an event, which is therefore handled in
// a batch of its own.
func leastAttempts(rules []RetryRule) (least int) {
	for _, r := range rules {
		if r.MaxAttempts > 1 && (least == 0 || r.MaxAttempts < least) {
			least = r.MaxAttempts
		}
	}
	return least
}

func ruleOrZero(r *RetryRule) RetryRule {
	if r == nil {
		return RetryRule{}
	}
	return *r
}

// text returns r as the value of its header, such as "attempts=5 initial=1s discard=true".
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

// readRule returns the rule that [RetryRule].text has written. It ignores what it cannot read,
// and returns nil for a contradictory rule, so that an event is never refused because of its
// rule.
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

// parse sets field to what read returns for text, unless read fails.
func parse[T any](field *T, text string, read func(string) (T, error)) {
	if v, err := read(text); err == nil {
		*field = v
	}
}
