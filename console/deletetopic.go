package console

import (
	"context"

	"github.com/seed41896749/eventbus/internal/operator"
)

// checkUnread returns an error unless a topic may be deleted: it exists, no group reads it, and the
// bus needs it for no other topic.
func (c *changes) checkUnread(ctx context.Context, topic string) error {
	if err := c.refuseInner(ctx, topic); err != nil {
		return err
	}
	n, err := operator.Partitions(ctx, c.backend, topic)
	if err != nil {
		return err
	}
	if n > 0 {
		return wrong("%s has %d partitions: delete it with eventbus topics delete", topic, n)
	}
	admin, err := operator.Admin(ctx, c.backend, topic, "")
	if err != nil {
		return err
	}
	groups, err := admin.Groups(ctx, topic)
	if err == nil && len(groups) > 0 {
		err = wrong("%s read %s: delete them first", plural(len(groups), "group"), topic)
	}
	return err
}

// deleteTopic deletes a topic that no group reads.
func (c *changes) deleteTopic(ctx context.Context, o *order) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTime)
	defer cancel()
	if err := c.checkUnread(ctx, o.Topic); err != nil {
		return "", err
	}
	admin, err := operator.Admin(ctx, c.backend, o.Topic, "")
	if err == nil {
		err = admin.DeleteTopic(ctx, o.Topic)
	}
	return "topic " + o.Topic + " is deleted, with its events", err
}
