package eventbus

import (
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus/internal/engine"
)

// An ErrorClass gives a name to some errors of handlers. RetryRule.Class and
// DeadLetter.ErrorClass contain the name.
type ErrorClass struct {
	Name string
	Is   func(error) bool // such as: errors.Is(err, ErrCardDeclined)
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
