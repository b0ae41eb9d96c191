// Package operator checks and parses what operators type: names of topics and groups, times and positions. The command,
// the console and configuration files share it.
package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/partition"
)

// RequireTopics returns an error if one of the topics does not exist, with a hint at the nearest name. It returns nil if
// the backend cannot list its topics, or this client may not.
func RequireTopics(ctx context.Context, b backend.Backend, names ...string) error {
	all, err := Topics(ctx, b)
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

// Partitioned returns the topics with partitions among the names of stored topics.
func Partitioned(names []string) (topics []string) {
	for _, name := range names {
		if topic := partition.Whole(name); topic != "" && name == partition.NumberTopic(topic) {
			topics = append(topics, topic)
		}
	}
	return topics
}

// visible returns names, with a topic with partitions in place of the topics that make it up.
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

// RequireStored returns an error if topic does not exist as a topic of the broker, for example because it has partitions.
func RequireStored(ctx context.Context, b backend.Backend, topic string) error {
	if err := RequireTopics(ctx, b, topic); err != nil {
		return err
	}
	all, err := Topics(ctx, b)
	if err == nil && all != nil && !slices.Contains(all, topic) {
		err = fmt.Errorf("%s has partitions, each of which is a topic of its own, such as %s: eventbus topics --all lists them", topic, partition.Topic(topic, 0))
	}
	return err
}

// Topics returns the topics that exist, or nil if the backend cannot list them or this client may not.
func Topics(ctx context.Context, b backend.Backend) ([]string, error) {
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

// Partitions returns the number of partitions of a topic. It returns 0 if the topic has none, or if this client may not
// read the number.
func Partitions(ctx context.Context, b backend.Backend, topic string) (int, error) {
	if backend.CheckName(partition.NumberTopic(topic)) != nil {
		return 0, nil //nolint:nilerr // a topic with so long a name has no partitions
	}
	n, err := partition.Number(ctx, b, topic)
	if errors.Is(err, backend.ErrDenied) || errors.Is(err, errors.ErrUnsupported) {
		return 0, nil
	}
	return n, err
}
