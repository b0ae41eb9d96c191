package eventbus

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
