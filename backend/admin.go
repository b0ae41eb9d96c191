package backend

import "context"

// An Admin is a [Backend] whose topics and groups can be listed and changed.
type Admin interface {
	// Topics lists the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)

	// Groups lists the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)

	// DeleteTopic removes a topic with its groups and messages. Members that are
	// attached get [ErrGone]. The positions of a deleted topic mean nothing for a later
	// topic of the same name: a backend may refuse them, or take them for others.
	DeleteTopic(ctx context.Context, topic string) error

	// DeleteGroup removes a group. Members that are attached get [ErrGone].
	DeleteGroup(ctx context.Context, topic, group string) error

	// ResetGroup lets a group begin again at start. The group forgets which messages it
	// held and delayed. A delivery from before is no longer its member's: Delay and
	// Extend return [ErrLeaseLost], and so does Ack if it is fenced. Without
	// [Limits].FencedAcks a backend may notice only when the lease has expired. Members
	// stay attached, and a Receive that waits delivers the messages that are due now.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}
