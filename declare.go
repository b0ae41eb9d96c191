package eventbus

import "context"

// Declare makes the topics and the group of a subscription before the first Subscribe, and changes
// nothing that exists. So the group gets each event that is published after Declare has returned,
// also with StartLatest. Declare stores the settings of Options.Topics, and declares the
// dead-letter topic. ctx bounds the call.
//
// Declare refuses o as Subscribe does, with the same errors. A pattern has no topic of its own, so
// Declare makes nothing for it. With EachInstance Declare makes no group, because the group of an
// instance begins with its Subscribe.
func (b *Bus) Declare(ctx context.Context, topic string, o SubscribeOptions) error {
	m := member{topic: topic, o: o}
	c, err := m.config(b)
	if err != nil {
		return err
	}
	if err := b.engine.DeclareGroup(ctx, c); err != nil {
		return &Error{Op: "declare", Topic: c.Topic, Group: c.Group, Err: err}
	}
	return nil
}
