package backend

import (
	"context"
	"time"
)

// A Declarer is a [Backend] that can create a topic ahead of its first message.
type Declarer interface {
	// Declare creates topic if it does not exist, and otherwise changes nothing. A backend
	// may leave the creation to Publish, and only check the permission. Declare returns
	// [ErrDenied] if this client may not publish to the topic. The bus declares dead-letter
	// topics, so that Subscribe reports a missing permission before the first dead letter.
	Declare(ctx context.Context, topic string) error
}

// Declare calls [Declarer].Declare of b. If b is no Declarer the error matches
// [errors.ErrUnsupported].
func Declare(ctx context.Context, b Backend, topic string) error {
	if d, ok := As[Declarer](b); ok {
		return d.Declare(ctx, topic)
	}
	return missing("declare a topic")
}

// DeclareGroup makes a topic and a group of it that begins at start, unless the group exists.
// The topic then keeps messages for the group before its first member attaches. The caller has
// checked both names with [CheckName].
func DeclareGroup(ctx context.Context, b Backend, topic, group string, start Start) error {
	const lease = 100 * time.Millisecond // short, because only the leases of members count
	src, err := b.Attach(ctx, Config{Topic: topic, Group: group, Start: start, Lease: lease})
	if err != nil {
		return err
	}
	return src.Close()
}
