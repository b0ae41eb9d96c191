package eventbus

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// A PartitionsError says that a program states another number of partitions of a topic,
// TopicOptions.Partitions, than the broker has stored.
type PartitionsError = partition.NumberError

// PartitionOf returns the partition of a key in a topic with n partitions: the FNV-1a hash of 32
// bits of the key, modulo n. It panics if n is less than 1.
func PartitionOf(key string, n int) int { return partition.Of(key, n) }

// PartitionTopics returns the names of the topics that are the partitions of topic. A program reads
// and publishes topic; commands of the operator take these names.
func PartitionTopics(topic string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = partition.Topic(topic, i)
	}
	return names
}

// Partitions returns the numbers of the partitions that this member owns now, sorted: it alone in
// its group gets their events. It returns nil if the topic has no partitions, and with
// EachInstance, because such a member has all of them and shares none. A member that waits for a
// share has an empty slice, which is not nil.
//
// The members of a group share the partitions of their topic: of M members each owns at most
// P/M, rounded up. When members come and go, partitions move. A member that gives one back
// first ends its runs of this partition. After a crash, the partitions of the member move when
// SubscribeOptions.Lease has passed. The observer's hook PartitionMoved tells of each move.
func (s *Subscription) Partitions() []int { return s.s.Owned() }

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
			return bad("needs a shorter name of the topic, because their topics have longer names: "+err.Error(), nil)
		}
	}
	return nil
}

// partitions returns the numbers of partitions of o.Topics, for the engine.
func (o Options) partitions() map[string]int {
	all := map[string]int{}
	for topic, settings := range o.Topics {
		if settings.Partitions > 0 {
			all[topic] = settings.Partitions
		}
	}
	return all
}

// partitionsOf returns the number of partitions of the topic of a subscription; 0: it has none.
// A topic with partitions is the only one of its subscription.
func (o Options) partitionsOf(all topics, s SubscribeOptions) (n int, err error) {
	for topic, settings := range o.Topics {
		if settings.Partitions == 0 || !slices.ContainsFunc(all, func(t string) bool { return pattern.Match(t, topic) }) {
			continue
		}
		if all.many() {
			return 0, &FieldError{Field: s.topicField(), Reason: topic + " has partitions, so that it needs a subscription of its own"}
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
