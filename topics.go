package eventbus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// topics are the names and patterns of the topics of a subscription, at least one.
type topics []string

// topics returns the topics that topic, the argument of Subscribe, and o.Topics give.
func (o SubscribeOptions) topics(topic string) (topics, error) {
	all, field := topics{topic}, o.topicField()
	if len(o.Topics) > 0 {
		all = slices.Clone(o.Topics)
		if topic != "" {
			return nil, &FieldError{Field: field, Reason: "is set, but the topic is given too: " + topic}
		}
	}
	for i, t := range all {
		if err := pattern.Check(t); err != nil {
			return nil, &FieldError{Field: field, Reason: err.Error()}
		}
		if partition.Reserved(t) {
			return nil, &FieldError{Field: field, Reason: t + " is a name that the bus uses for the partitions of a topic"}
		}
		if slices.Contains(all[:i], t) {
			return nil, &FieldError{Field: field, Reason: fmt.Sprintf("has %q twice", t)}
		}
	}
	return all, nil
}

// topicField returns the name of the field that gives the topics.
func (o SubscribeOptions) topicField() string {
	if len(o.Topics) > 0 {
		return "SubscribeOptions.Topics"
	}
	return "topic"
}

// many reports whether a subscription may have more than one topic.
func (t topics) many() bool { return len(t) > 1 || pattern.Is(t[0]) }

func (t topics) String() string { return strings.Join(t, ",") }

// overlap reports whether a topic may be in both t and other.
func (t topics) overlap(other topics) bool {
	return slices.ContainsFunc(t, func(x string) bool {
		return slices.ContainsFunc(other, func(y string) bool { return pattern.Overlap(x, y) })
	})
}

// refuses returns why name cannot be the dead-letter topic of t; "": it can. An empty name means
// that each topic has its own.
func (t topics) refuses(name string) (reason string) {
	if name == "" && t.many() {
		for _, topic := range t {
			if err := pattern.Check(topic + deadLetterSuffix); err != nil && !pattern.Is(topic) {
				return err.Error()
			}
		}
		return ""
	}
	if err := backend.CheckName(name); err != nil {
		return err.Error()
	}
	for _, topic := range t {
		switch {
		case topic == name && !t.many():
			return "is the topic itself"
		case pattern.Match(topic, name):
			return fmt.Sprintf("is %s, which is one of the topics, %v", name, t)
		}
	}
	return ""
}
