package console

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pages"
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

// setUnread sets how much a topic has that no group reads.
func (p *confirmPage) setUnread(ctx context.Context, c *console) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	topic := p.Order.Topic
	if err := c.changes.checkUnread(ctx, topic); err != nil {
		return err
	}
	var err error
	if p.Comes, err = c.behind(ctx, []string{topic}, backend.StartEarliest); err != nil {
		return err
	}
	rows, _, err := c.browse(topic).newest(ctx, "", 1)
	if len(rows) > 0 {
		p.Last = &rows[0]
	}
	if errors.Is(err, pages.ErrSpent) {
		return nil // it is not shown
	}
	return err
}

// deleteTopic deletes a topic that no group reads.
func (c *changes) deleteTopic(ctx context.Context, j *job, o *order) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTime)
	defer cancel()
	if err := c.checkUnread(ctx, o.Topic); err != nil {
		return "", err
	}
	admin, err := operator.Admin(ctx, c.backend, o.Topic, "")
	if err == nil {
		err = admin.DeleteTopic(ctx, o.Topic)
	}
	if err != nil {
		return "", err
	}
	j.progress(1, "")
	return "topic " + o.Topic + " is deleted, with its events", nil
}
