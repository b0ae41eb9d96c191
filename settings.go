package eventbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// TopicOptions are the settings of one topic. The broker stores them, so that they apply to every
// process. The first process to state settings for a topic sets them. If a later process states
// other settings, those that are stored stay in force, and the observer of that process gets a
// notice with both. To change them, use [backend.Declare] with Replace, or the command "eventbus
// topics set".
type TopicOptions struct {
	// Keep is how long an event stays after it was published, even if every group has settled it,
	// so that new groups and groups that are reset get it. An event that some group has not
	// settled stays in any case. Default 0: the broker may remove an event as soon as every group
	// has settled it.
	Keep time.Duration

	// MaxMessages and MaxBytes limit the events in the topic, including kept ones. When a limit
	// is reached, the oldest settled events are removed to make room; if that is not enough,
	// Publish fails with ErrFull. Default: the limits of the backend.
	MaxMessages int64
	MaxBytes    int64

	// Groups are created ahead of their first members, so that the topic keeps events for them
	// from now on. A new group begins with the oldest event.
	Groups []string

	// Partitions divides the topic into this number of partitions, at most 1,024. The events of a
	// key are then handled in order across the whole group rather than within each member only,
	// see [Subscription.Partitions]. Every program that uses the topic must state the same
	// number: the broker stores it, and a program with another number gets a *PartitionsError.
	// MaxMessages and MaxBytes apply to each partition. Default: no partitions.
	Partitions int
}

// Declare creates the topics and the group of a subscription ahead of the first Subscribe, so
// that the group gets every event published after Declare has returned, even with StartLatest. It
// changes nothing that exists. Declare also stores the settings in Options.Topics and declares
// the dead-letter topic. ctx bounds the call.
//
// Declare refuses o as Subscribe does, with the same errors. For a pattern it creates nothing,
// because a pattern has no topic of its own. With EachInstance it creates no group, because the
// group of an instance begins with its Subscribe.
func (b *Bus) Declare(ctx context.Context, topic string, o SubscribeOptions) error {
	m := member{topic: topic, o: o}
	c, err := m.config(b)
	if err != nil {
		return err
	}
	if err := b.engine.DeclareGroup(ctx, c); err != nil {
		return &Error{Op: "declare", Topic: c.Topic, Group: c.Group, Err: err}
	}
	return nil
}

// A PartitionsError reports that the program states another number of partitions for a topic
// (TopicOptions.Partitions) than the broker has stored.
type PartitionsError = partition.NumberError

// PartitionOf returns the partition of a key in a topic with n partitions: the 32-bit FNV-1a hash
// of the key, modulo n. It panics if n is less than 1.
func PartitionOf(key string, n int) int { return partition.Of(key, n) }

// PartitionTopics returns the names of the topics that hold the n partitions of topic. Operators
// pass these names to commands; programs publish and subscribe to topic itself.
func PartitionTopics(topic string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = partition.Topic(topic, i)
	}
	return names
}

// settings returns what the broker stores for the topic, or for each of its partitions.
func (o TopicOptions) settings() backend.TopicSettings {
	return backend.TopicSettings{Keep: o.Keep, MaxMessages: o.MaxMessages, MaxBytes: o.MaxBytes}
}

// topics returns o.Topics in the form that the engine takes.
func (o Options) topics() map[string]engine.Topic {
	all := make(map[string]engine.Topic, len(o.Topics))
	for topic, t := range o.Topics {
		if s := t.settings(); s != (backend.TopicSettings{}) || len(t.Groups) > 0 {
			all[topic] = engine.Topic{Settings: s, Groups: slices.Clone(t.Groups)}
		}
	}
	return all
}

// checkTopics returns an error if a setting is invalid or the backend does not support it.
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

// partitions returns the number of partitions of each topic of o.Topics that has some.
func (o Options) partitions() map[string]int {
	all := map[string]int{}
	for topic, settings := range o.Topics {
		if settings.Partitions > 0 {
			all[topic] = settings.Partitions
		}
	}
	return all
}

// checkPartitions returns an error if a topic of o cannot have its partitions on b.
func (o Options) checkPartitions(b backend.Backend) error {
	for _, topic := range slices.Sorted(maps.Keys(o.Topics)) {
		bad := func(reason string, err error) error {
			return &FieldError{Field: "Options.Topics", Reason: "of " + topic + ": Partitions " + reason, Err: err}
		}
		n := o.Topics[topic].Partitions
		if n < 0 || n > partition.Most {
			return bad(fmt.Sprintf("is %d, want 1 to %d", n, partition.Most), nil)
		}
		if n == 0 {
			continue
		}
		switch err := partition.Check(b, topic); {
		case errors.Is(err, errors.ErrUnsupported):
			return bad("is set, but "+err.Error(), errors.ErrUnsupported)
		case err != nil:
			return bad("need a shorter topic name, because the topics of partitions have longer ones: "+err.Error(), nil)
		}
	}
	return nil
}

// partitionsOf returns the number of partitions of the topic of a subscription, or 0 if it has
// none. A topic with partitions must be the only one of its subscription.
func (o Options) partitionsOf(all topics, s SubscribeOptions) (n int, err error) {
	for topic, settings := range o.Topics {
		if settings.Partitions == 0 || !slices.ContainsFunc(all, func(t string) bool { return pattern.Match(t, topic) }) {
			continue
		}
		if all.many() {
			return 0, &FieldError{Field: s.topicField(), Reason: topic + " has partitions, so it needs a subscription of its own"}
		}
		n = settings.Partitions
	}
	if n == 0 {
		return 0, nil
	}
	bad := func(field, reason string) (int, error) {
		return 0, &FieldError{Field: "SubscribeOptions." + field, Reason: reason}
	}
	_, after := s.Start.After()
	switch {
	case after:
		return bad("Start", "is a position, but each partition has its own positions")
	case s.Order == OrderTotal && n > 1:
		return bad("Order", fmt.Sprintf("is OrderTotal, which needs 1 partition, and %s has %d", all, n))
	case s.Group != EachInstance && s.Lease < partition.LeastLease:
		return bad("Lease", fmt.Sprintf("is %v, less than %v, which partitions need", s.Lease, partition.LeastLease))
	}
	return n, nil
}
