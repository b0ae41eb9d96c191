package backend

import "context"

// An Admin is a [Backend] whose topics and groups can be listed and changed.
type Admin interface {
	// Topics lists the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)

	// Groups lists the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)

	// DeleteTopic removes a topic with its groups and messages. Calls of members that are
	// attached then return [ErrGone]. A later topic may have the same name. A backend may
	// refuse positions of the deleted topic there, or find other messages at them.
	DeleteTopic(ctx context.Context, topic string) error

	// DeleteGroup removes a group. Calls of its members then return [ErrGone].
	DeleteGroup(ctx context.Context, topic, group string) error

	// ResetGroup lets a group begin again at start. The group forgets which messages it
	// held and delayed. For a delivery from before the reset, Delay and Extend return
	// [ErrLeaseLost], and a fenced Ack does too. A backend without [Limits].FencedAcks may
	// still accept them until the lease of that delivery has expired. Members stay attached, and a Receive
	// that waits delivers the messages that are due now.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}
