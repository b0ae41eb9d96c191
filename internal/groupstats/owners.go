package groupstats

import (
	"context"
	"errors"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

// An OwnerRow is the line of a member that shares partitions in the output of eventbus groups --owners.
type OwnerRow struct {
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Member     string `json:"member"` // the name of its process; empty: no member owns these partitions
	Partitions []int  `json:"partitions"`
	Lives      bool   `json:"lives"` // false: no heartbeat for three seconds
}

// Owners describes the members of the named topics with partitions, or of all such topics, by topic and group. A row
// without a member has the partitions of the group that no member owns.
func (s *Survey) Owners(ctx context.Context, topics ...string) ([]OwnerRow, error) {
	if len(topics) == 0 {
		names, err := s.admin.Topics(ctx)
		if err != nil {
			return nil, err
		}
		topics = operator.Partitioned(names)
	}
	all, errs := make([][]OwnerRow, len(topics)), make([]error, len(topics))
	concurrently(len(topics), func(i int) { all[i], errs[i] = s.ownersOf(ctx, topics[i]) })
	return slices.Concat(append([][]OwnerRow{{}}, all...)...), errors.Join(errs...)
}

func (s *Survey) ownersOf(ctx context.Context, topic string) (rows []OwnerRow, err error) {
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
			rows = append(rows, OwnerRow{topic, group, m.Name, append([]int{}, m.Owned...), m.Lives})
		}
		if len(free) > 0 {
			rows = append(rows, OwnerRow{Topic: topic, Group: group, Partitions: free})
		}
	}
	return rows, nil
}
