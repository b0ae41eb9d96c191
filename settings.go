package eventbus

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
)

// TopicOptions are the settings of one topic. The broker stores them, so they hold for every
// process. The first process that states settings for a topic sets them. If a later process
// states others, its observer gets a notice with both, and the stored settings stay in force.
// [backend.Declare] with Replace, and "eventbus topics set", change them.
type TopicOptions struct {
	// Keep is how long an event stays after it was published, even if every group has settled
	// it. New groups and groups that are reset get it. Default 0: the broker may forget an
	// event as soon as every group has settled it. An event that a group has not settled stays
	// in any case.
	Keep time.Duration

	// MaxMessages and MaxBytes bound the events of the topic, kept ones included. To make
	// room, settled events go first, the oldest before the others. Publish then fails with
	// ErrFull. Default: the bounds of the backend.
	MaxMessages int64
	MaxBytes    int64

	// Groups are to exist before their first members subscribe, so that the topic has the events
	// for them from now on. A new one begins with the oldest event.
	Groups []string

	// Partitions divides the topic into so many partitions, so that all events of a key are
	// handled in order in the whole group, and not only in each member: see
	// [Subscription.Partitions]. Every program that uses the topic states the same number. The
	// broker stores it, and a program with another number gets a *PartitionsError. At most
	// 1,024. MaxMessages and MaxBytes bound each partition. Default: no partitions.
	Partitions int
}

// settings returns the settings that the broker stores for a topic, or for each of its partitions.
func (o TopicOptions) settings() backend.TopicSettings {
	return backend.TopicSettings{Keep: o.Keep, MaxMessages: o.MaxMessages, MaxBytes: o.MaxBytes}
}

// checkTopics returns an error if the backend does not support a setting.
func (o Options) checkTopics(l backend.Limits) error {
	for _, topic := range slices.Sorted(maps.Keys(o.Topics)) {
		const field = "Options.Topics"
		if err := checkTopic(topic); err != nil {
			return &FieldError{Field: field, Reason: "has the topic " + topic + ": " + err.Error()}
		}
		for _, group := range o.Topics[topic].Groups {
			if err := backend.CheckName(group); err != nil {
				return &FieldError{Field: field, Reason: "of " + topic + " has the group " + err.Error()}
			}
		}
		err := l.Settings.Check(o.Topics[topic].settings())
		if errors.Is(err, errors.ErrUnsupported) {
			return &FieldError{Field: field, Reason: "of " + topic + ": " + err.Error(), Err: errors.ErrUnsupported}
		}
		if err != nil {
			return &FieldError{Field: field, Reason: "of " + topic + " has a negative number"}
		}
	}
	return nil
}

// topics returns o.Topics for the engine.
func (o Options) topics() map[string]engine.Topic {
	all := make(map[string]engine.Topic, len(o.Topics))
	for topic, t := range o.Topics {
		if s := t.settings(); s != (backend.TopicSettings{}) || len(t.Groups) > 0 {
			all[topic] = engine.Topic{Settings: s, Groups: slices.Clone(t.Groups)}
		}
	}
	return all
}
