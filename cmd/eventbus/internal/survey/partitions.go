package survey

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// An Owner is the line that the command prints for a member that shares partitions.
type Owner struct {
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Member     string `json:"member"` // the name of its process; empty: no member owns these partitions
	Partitions []int  `json:"partitions"`
	Lives      bool   `json:"lives"` // false: it has written no note for three seconds
}

// Owners describes the members of the named topics with partitions, or of all such topics, by
// topic and group. A row without a member has the partitions of the group that no member owns.
func (s *Survey) Owners(ctx context.Context, topics ...string) ([]Owner, error) {
	if len(topics) == 0 {
		names, err := s.admin.Topics(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if topic := partition.Whole(name); topic != "" && name == partition.NumberTopic(topic) {
				topics = append(topics, topic)
			}
		}
	}
	all, errs := make([][]Owner, len(topics)), make([]error, len(topics))
	concurrently(len(topics), func(i int) { all[i], errs[i] = s.ownersOf(ctx, topics[i]) })
	return slices.Concat(append([][]Owner{{}}, all...)...), errors.Join(errs...)
}

func (s *Survey) ownersOf(ctx context.Context, topic string) (rows []Owner, err error) {
	n, err := operator.Partitions(ctx, s.backend, topic)
	if err != nil || n == 0 {
		return nil, err
	}
	members, err := partition.Members(ctx, s.backend, topic)
	if err != nil {
		return nil, err
	}
	groups, err := s.admin.Groups(ctx, partition.OwnersTopic(topic))
	if err != nil && !errors.Is(err, backend.ErrGone) {
		return nil, err
	}
	for _, m := range members {
		if !slices.Contains(groups, m.Group) {
			groups = append(groups, m.Group)
		}
	}
	slices.Sort(groups)
	for _, group := range groups {
		owners, free := partition.OwnersOf(group, n, members)
		for _, m := range owners {
			rows = append(rows, Owner{topic, group, m.Name, append([]int{}, m.Owned...), m.Lives})
		}
		if len(free) > 0 {
			rows = append(rows, Owner{Topic: topic, Group: group, Partitions: free})
		}
	}
	return rows, nil
}

// divided returns the numbers of partitions of the topics with partitions among names.
func (s *Survey) divided(ctx context.Context, names []string) (numbers map[string]int, err error) {
	numbers = map[string]int{}
	var errs []error
	for _, name := range names {
		topic := partition.Whole(name)
		if topic == "" || name != partition.NumberTopic(topic) {
			continue
		}
		n, err := operator.Partitions(ctx, s.backend, topic)
		if errs = append(errs, err); n > 0 {
			numbers[topic] = n
		}
	}
	return numbers, errors.Join(errs...)
}

// inner reports whether name is one of the topics of which a topic with partitions consists, or the
// topic of package presence. A partition that is out of use is none of them.
func inner(name string, numbers map[string]int) bool {
	if name == presence.Topic {
		return true
	}
	n := numbers[partition.Whole(name)]
	_, i, is := partition.Cut(name)
	return n > 0 && (!is || i < n)
}

// wholeTopic describes a topic with n partitions: the sum of their depths, and the number of groups
// that are in any of them.
func (s *Survey) wholeTopic(ctx context.Context, topic string, n int) (Topic, error) {
	rows, errs := make([]Topic, n), make([]error, n)
	groups := make([][]string, n)
	concurrently(n, func(i int) { rows[i], groups[i], errs[i] = s.topic(ctx, partition.Topic(topic, i)) })
	whole := Topic{Topic: topic, Partitions: n}
	in := map[string]bool{}
	for i, row := range rows {
		if errors.Is(errs[i], backend.ErrGone) { // not made yet
			errs[i] = nil
			continue
		}
		whole.Depth = plus(whole.Depth, row.Depth)
		for _, g := range groups[i] {
			in[g] = true
		}
		if row.Groups < 0 {
			whole.Groups = backend.Unknown
		}
	}
	if whole.Groups == 0 {
		whole.Groups = Count(len(in))
	}
	return whole, errors.Join(errs...)
}

// wholeGroups describes the groups of a topic with n partitions, each by the sum over all of them.
// Its members are the ones that share the tokens. Its pause is the pause of any partition.
func (s *Survey) wholeGroups(ctx context.Context, topic string, n int) (rows []Group, err error) {
	dead, err := s.deadLetters(ctx, topic+".dlq")
	if err != nil {
		return nil, err
	}
	parts, errs := make([][]Group, n), make([]error, n)
	concurrently(n, func(i int) {
		if parts[i], errs[i] = s.statsOf(ctx, partition.Topic(topic, i)); errors.Is(errs[i], backend.ErrGone) {
			errs[i] = nil // not made yet
		}
	})
	sums := map[string]*Group{}
	for _, part := range parts {
		for _, g := range part {
			sum := sums[g.Group]
			if sum == nil {
				sum = &Group{Topic: topic, Group: g.Group, Partitions: n, DeadLetters: dead.of(g.Group)}
				sums[g.Group] = sum
			}
			sum.add(&g)
		}
	}
	for _, sum := range sums {
		owners, err := s.stats(ctx, partition.OwnersTopic(topic), sum.Group)
		if err == nil {
			sum.Members = Count(owners.Members)
		} else if !errors.Is(err, backend.ErrGone) { // a group of one instance owns nothing
			errs = append(errs, err)
		}
		rows = append(rows, *sum)
	}
	slices.SortFunc(rows, func(a, b Group) int { return strings.Compare(a.Group, b.Group) })
	return rows, errors.Join(errs...)
}

// add adds the numbers of a partition.
func (g *Group) add(part *Group) {
	g.Depth, g.Lag = plus(g.Depth, part.Depth), plus(g.Lag, part.Lag)
	g.Unacked = plus(g.Unacked, part.Unacked)
	g.InFlight, g.Delayed = plus(g.InFlight, part.InFlight), plus(g.Delayed, part.Delayed)
	g.Members = max(g.Members, part.Members)
	if g.Oldest.IsZero() || !part.Oldest.IsZero() && part.Oldest.Before(g.Oldest) {
		g.Oldest = part.Oldest
	}
	if g.Paused == nil {
		g.Paused = part.Paused
	}
}

// plus adds two numbers, each of which may be unknown.
func plus(a, b Count) Count {
	if a < 0 || b < 0 {
		return backend.Unknown
	}
	return a + b
}

const atOnce = 16 // calls to the backend

// concurrently calls f with each number below n, some at the same time.
func concurrently(n int, f func(i int)) {
	var calls sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range n {
		turns <- struct{}{}
		calls.Go(func() {
			defer func() { <-turns }()
			f(i)
		})
	}
	calls.Wait()
}
