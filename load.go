package eventbus

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/engine"
)

// A Load has the events that a member holds at one moment. MaxInFlight and MaxBytes of
// SubscribeOptions bound them.
type Load struct {
	Events  int
	Bytes   int64
	Running int // of Events: with a handler
}

// Load returns the load of this member.
func (s *Subscription) Load() Load { return Load(s.s.Load()) }

// Stats describes a group; a negative number is unknown.
type Stats = backend.Stats

// Stats asks the backend about the subscription's group, all members together. If the
// backend cannot tell, the error matches errors.ErrUnsupported.
func (s *Subscription) Stats(ctx context.Context) (Stats, error) { return s.s.Stats(ctx) }

// Subscriptions lists the subscriptions that are not drained, by topic and group. Once
// Shutdown is called there are none.
func (b *Bus) Subscriptions() []*Subscription {
	list := b.engine.Subscriptions()
	slices.SortStableFunc(list, func(x, y *engine.Subscription) int {
		return cmp.Or(strings.Compare(x.Topic, y.Topic), strings.Compare(x.Group, y.Group))
	})
	subscriptions := make([]*Subscription, len(list))
	for i, s := range list {
		subscriptions[i] = &Subscription{s: s}
	}
	return subscriptions
}
