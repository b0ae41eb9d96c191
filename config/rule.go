package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
)

// A rule has the keys of an [eventbus.RetryRule], whose class is the name of the rule.
type rule struct {
	Attempts number `key:"attempts" min:"1" none:"unlimited" example:"1" doc:"How often a handler may fail before the event goes to the dead-letter topic."`
	Backoff  span   `key:"backoff" min:"1ms" example:"1m..1h" doc:"The delay after the first failure, and the longest delay."`
	Discard  flag   `key:"discard" doc:"Discards the event after its last attempt, without a dead letter."`
}

// rules returns the rules for errors of classes, sorted by the name of the class.
func (r *retry) rules() (rules []eventbus.RetryRule) {
	for _, class := range slices.Sorted(maps.Keys(r.Rules)) {
		rule := r.Rules[class]
		rules = append(rules, eventbus.RetryRule{
			Class: class, MaxAttempts: int(rule.Attempts), Initial: rule.Backoff.Initial, Max: rule.Backoff.Max, Discard: bool(rule.Discard),
		})
	}
	return rules
}

// ruled describes a rule for a class of errors.
func ruled(r eventbus.RetryRule) string {
	var does []string
	switch {
	case r.MaxAttempts < 0:
		does = append(does, "attempts without end")
	case r.MaxAttempts == 1:
		does = append(does, "one attempt")
	case r.MaxAttempts > 1:
		does = append(does, "up to "+thousands(r.MaxAttempts)+" attempts")
	}
	if r.Initial > 0 {
		does = append(does, short(r.Initial)+" to "+short(max(r.Max, r.Initial))+" apart")
	}
	if r.Discard {
		does = append(does, "then discarded")
	}
	return "after errors of class " + r.Class + ": " + strings.Join(does, ", ")
}
