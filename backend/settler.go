package backend

import "context"

// A Settler is a [Backend] whose operators can take a message away from a group. If the topic or
// group does not exist, the error is [ErrGone].
type Settler interface {
	// Settle removes one message from a group for good, like an Ack. Any member may hold the message, and
	// it may be delayed. If the group has certainly settled the message
	// before, had is false, and nothing is changed. A backend that cannot tell returns true. If the group has
	// never received the message, the error is [ErrRefused].
	//
	// The holder is not asked. Its Delay, Extend and fenced Ack then return [ErrLeaseLost]. A
	// backend without [Limits].FencedAcks may accept them until its driver in the process of the holder
	// knows of the Settle, which takes 10 seconds at most while the group is maintained there or receives no
	// messages. The group gets the message again in neither case, unless ResetGroup lets it begin before the message.
	Settle(ctx context.Context, topic, group, position string) (had bool, err error)

	// Settled reports for each position whether the group has certainly settled the message, so that it does not
	// get the message again, unless it is reset. It is false for a message that the group has or has not received yet, and if
	// the backend cannot tell. After a Settle has returned, it is true for two minutes at least.
	Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error)
}

// SettlerOf returns the Settler that b is or wraps. If there is none the error matches
// [errors.ErrUnsupported].
func SettlerOf(b Backend) (Settler, error) {
	if s, ok := As[Settler](b); ok {
		return s, nil
	}
	return nil, missing("take messages away from groups")
}
