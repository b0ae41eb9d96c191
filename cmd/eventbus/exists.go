package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/partition"
)

// requireTopics returns an error if one of the topics does not exist. It returns nil if the
// backend cannot, or may not, list its topics.
func requireTopics(ctx context.Context, b backend.Backend, names ...string) error {
	all, err := topicsOf(ctx, b)
	if err != nil || all == nil {
		return err
	}
	known := visible(all)
	for _, name := range names {
		if !slices.Contains(all, name) && !slices.Contains(known, name) {
			return fmt.Errorf("there is no topic %q%s", name, nearest.Hint("%s", name, known))
		}
	}
	return nil
}

// visible returns names with a topic with partitions in place of the inner topics of which it
// consists.
func visible(names []string) (known []string) {
	for _, name := range names {
		topic := partition.Whole(name)
		if topic == "" || !slices.Contains(names, partition.NumberTopic(topic)) {
			topic = name
		}
		if !slices.Contains(known, topic) {
			known = append(known, topic)
		}
	}
	return known
}

// requireStored returns an error if topic does not exist as a topic of the broker. It may be a topic
// with partitions.
func requireStored(ctx context.Context, b backend.Backend, topic string) error {
	if err := requireTopics(ctx, b, topic); err != nil {
		return err
	}
	all, err := topicsOf(ctx, b)
	if err == nil && all != nil && !slices.Contains(all, topic) {
		err = fmt.Errorf("%s has partitions, each of which is a topic of its own, such as %s: eventbus topics --all lists them", topic, partition.Topic(topic, 0))
	}
	return err
}

// topicsOf returns the topics that exist; nil if the backend cannot, or may not, list them.
func topicsOf(ctx context.Context, b backend.Backend) ([]string, error) {
	admin, ok := backend.As[backend.Admin](b)
	if !ok {
		return nil, nil
	}
	all, err := admin.Topics(ctx)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, backend.ErrDenied) {
		return nil, nil
	}
	if all == nil && err == nil {
		all = []string{}
	}
	return all, err
}

// requireLetters returns an error if topic exists, and its first event is no dead letter.
func requireLetters(ctx context.Context, b backend.Backend, topic string) error {
	all, err := topicsOf(ctx, b)
	if err != nil {
		return err
	}
	reader, ok := backend.As[backend.Reader](b)
	if !ok {
		return nil // the command needs a Reader, and says so
	}
	first, _ := reader.Read(ctx, topic, "", 1) // the command meets the same error
	if len(first) == 0 {
		return nil
	}
	event := eventbus.EventOf(&first[0])
	if _, is := eventbus.DeadLetterOf(&event); is {
		return nil
	}
	hint := ""
	if slices.Contains(all, topic+".dlq") {
		hint = "; did you mean " + topic + ".dlq?"
	}
	return fmt.Errorf("%s is no dead-letter topic: its first event is no dead letter%s", topic, hint)
}

// requireGroup returns an error if t has dead letters, but neither they nor the topics of
// their events have this group.
func requireGroup(ctx context.Context, b backend.Backend, t *deadletter.Topic, group string) error {
	for _, err := range t.All(ctx, deadletter.Filter{Group: group}) {
		return err // there is one
	}
	classes, err := t.Classes(ctx, deadletter.Filter{})
	var groups []string
	for _, c := range classes {
		groups = append(groups, c.Group)
		if admin, ok := backend.As[backend.Admin](b); ok {
			some, _ := admin.Groups(ctx, c.Topic) // without its groups, the hint is shorter
			groups = append(groups, some...)
		}
	}
	if err != nil || len(groups) == 0 || slices.Contains(groups, group) {
		return err
	}
	return fmt.Errorf("no dead letter is of the group %q%s", group, nearest.Hint("%s", group, groups))
}
