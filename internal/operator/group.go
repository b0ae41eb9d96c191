package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// Admin returns the Admin that b is or wraps. It returns an error if there is none, or if the topic or the group does not
// exist; an empty group is not checked.
func Admin(ctx context.Context, b backend.Backend, topic, group string) (backend.Admin, error) {
	admin, ok := backend.As[backend.Admin](b)
	if !ok {
		return nil, fmt.Errorf("this backend cannot change topics and groups: %w", errors.ErrUnsupported)
	}
	if err := RequireStored(ctx, b, topic); err != nil || group == "" {
		return admin, err
	}
	groups, err := admin.Groups(ctx, topic)
	if err == nil && !slices.Contains(groups, group) {
		err = fmt.Errorf("%s has no group %q%s", topic, group, nearest.Hint("%s", group, groups))
	}
	return admin, err
}

// Pauser returns the Pauser that b is or wraps. It returns an error if there is none, or if the group does not exist.
func Pauser(ctx context.Context, b backend.Backend, topic, group string) (backend.Pauser, error) {
	if _, err := Admin(ctx, b, topic, group); err != nil {
		return nil, err
	}
	return backend.PauserOf(b)
}

// Unsettled returns how many events a group has not settled, or [backend.Unknown].
func Unsettled(ctx context.Context, b backend.Backend, topic, group string) int64 {
	s, err := backend.StatsOf(ctx, b, topic, group)
	if err == nil && s.Lag >= 0 && s.Unacked >= 0 {
		return s.Lag + s.Unacked
	}
	return backend.Unknown
}
