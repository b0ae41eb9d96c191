package backend

import "context"

// An Admin is a [Backend] whose topics and groups can be listed and changed.
type Admin interface {
	// Topics lists the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)

	// Groups lists the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)

	// DeleteTopic removes a topic with its groups and messages. Calls of members that
	// are attached then return [ErrGone]. In a later topic of the same name, a backend
	// may refuse the positions of the deleted one, or find other messages there.
	DeleteTopic(ctx context.Context, topic string) error

	// DeleteGroup removes a group. Calls of its members then return [ErrGone].
	DeleteGroup(ctx context.Context, topic, group string) error

	// ResetGroup lets a group begin again at start. The group forgets which messages it
	// held and delayed. For a delivery from before the reset, Delay and Extend return
	// [ErrLeaseLost], and so does Ack if it is fenced. A backend without
	// [Limits].FencedAcks may do so only after the lease of that delivery. Members stay
	// attached, and a Receive that waits delivers the messages that are due now.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}
