package backend

import "context"

// An Admin is a [Backend] whose topics and groups can be listed and changed. If a topic or
// group given to a method does not exist, the error is [ErrGone]. In a cluster of brokers, a list
// may be a second behind: names that were just deleted may be in it, and new ones may be missing.
type Admin interface {
	// Topics lists the topics that exist, sorted.
	Topics(ctx context.Context) ([]string, error)

	// Groups lists the groups of topic, sorted.
	Groups(ctx context.Context, topic string) ([]string, error)

	// DeleteTopic removes a topic with its groups and messages. Receive of each attached
	// member then returns [ErrGone]. Delay, Extend and a fenced Ack return [ErrGone] or
	// [ErrLeaseLost]. A new topic may have the same name. It remembers no ID of the deleted
	// topic, see [Message].Once. Its positions are greater, or the old positions are refused,
	// see [Message].Position.
	DeleteTopic(ctx context.Context, topic string) error

	// DeleteGroup removes a group. Calls of its members then fail as after DeleteTopic. For a
	// member of a new group of the same name, a delivery of the old group is like a delivery
	// from before ResetGroup: its lease is lost. A member that did not call Receive meanwhile
	// may receive from the new group.
	DeleteGroup(ctx context.Context, topic, group string) error

	// ResetGroup lets a group begin again at start. The group forgets which messages were
	// held or delayed. Members stay attached. A Receive that waits delivers the messages
	// that are due now. For a delivery from before the reset, Delay, Extend and a fenced
	// Ack return [ErrLeaseLost]. A backend without [Limits].FencedAcks may accept Delay and
	// Extend until the lease of that delivery has expired, and Ack at any time.
	ResetGroup(ctx context.Context, topic, group string, start Start) error
}
