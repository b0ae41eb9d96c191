package console

import (
	"context"
	"errors"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// checkUnread returns an error unless a topic may be deleted: it exists, no group reads it, it has no
// dead letters, and it is none that the bus keeps for other topics or for itself.
func (c *changes) checkUnread(ctx context.Context, topic string) error {
	if err := c.refuseInner(ctx, topic); err != nil {
		return err
	}
	if isOfTheBus(topic) {
		return wrong("%s is a topic of the bus", topic)
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
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		return wrong("%s read %s: delete them first", plural(len(groups), "group"), topic)
	}
	if strings.HasSuffix(topic, groupstats.LettersSuffix) {
		return wrong("%s is a topic of dead letters: discard them", topic)
	}
	if t := c.sampler.Look(ctx).Topic(topic); t != nil && t.Letters != nil && (t.Letters.N > 0 || t.Letters.More) {
		return wrong("%s has dead letters: discard them", topic)
	}
	return nil
}

// isOfTheBus reports whether the bus keeps a topic of this name.
func isOfTheBus(topic string) bool {
	name := strings.TrimSuffix(topic, ".token") // of a schedule
	return topic == presence.Topic || partition.Whole(topic) != "" || strings.HasSuffix(name, later.Suffix) || recordsTopic(topic) != ""
}

// setUnread sets how much a topic has that no group reads.
func (p *confirmPage) setUnread(ctx context.Context, c *console) error {
	topic := p.Order.Topic
	found, err := reading(ctx, c.readings, "unread\x00"+topic, func(ctx context.Context) (*unread, error) {
		if err := c.changes.checkUnread(ctx, topic); err != nil {
			return nil, err
		}
		u := new(unread)
		rows, _, err := c.browse(ctx, topic).newest(ctx, "", 1)
		if len(rows) > 0 {
			u.last = &rows[0]
		}
		if err != nil && !errors.Is(err, pages.ErrSpent) { // then the last event is not shown
			return nil, err
		}
		u.comes, err = c.behind(ctx, []string{topic}, backend.StartEarliest)
		return u, err
	})
	if err == nil {
		p.Comes, p.Last = found.comes, found.last
	}
	return err
}

// An unread tells of a topic that no group reads.
type unread struct {
	comes *tally
	last  *row // nil: not known
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
