package ndjson

import (
	"time"

	"github.com/seed41896749/eventbus"
)

// A rule is the JSON form of Event.Retry.
type rule struct {
	Attempts int  `json:"attempts,omitempty"`
	Initial  span `json:"initial,omitzero"`
	Max      span `json:"max,omitzero"`
	Discard  bool `json:"discard,omitempty"`
}

func ruleOf(r *eventbus.RetryRule) *rule {
	if r == nil {
		return nil
	}
	return &rule{r.MaxAttempts, span(r.Initial), span(r.Max), r.Discard}
}

func (r *rule) retry() *eventbus.RetryRule {
	if r == nil {
		return nil
	}
	return &eventbus.RetryRule{MaxAttempts: r.Attempts, Initial: time.Duration(r.Initial), Max: time.Duration(r.Max), Discard: r.Discard}
}

// A span is a duration that JSON shows as a text, such as "1m30s".
type span time.Duration

func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

func (s *span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}
