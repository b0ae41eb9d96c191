package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/later"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pages"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

const groupTimeout = 30 * time.Second // of one change of a group

// changeGroup pauses, resumes, resets or deletes a group: in its topic, or in each partition.
func (x *executor) changeGroup(ctx context.Context, j *job, form *changeForm) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	topics, err := x.topicsOf(ctx, form)
	if err != nil {
		return "", err
	}
	for i, topic := range topics {
		if err := x.changeInTopic(ctx, topic, form); err != nil {
			if len(topics) > 1 {
				err = fmt.Errorf("%s: %w", topic, err)
			}
			return "", err
		}
		j.progress(i+1, "")
	}
	text := groupResultText(form)
	if len(topics) > 1 {
		text += ", in " + plural(len(topics), "partition")
	}
	if form.Verb != DeleteGroup {
		text += ", and has " + unsettled(x.unsettled(ctx, topics, form.Group))
	}
	return text, nil
}

// topicsOf returns the topics of the broker in which the group of a form is: the topic itself, or
// its partitions.
func (x *executor) topicsOf(ctx context.Context, form *changeForm) (topics []string, err error) {
	if err := x.refusePartition(ctx, form.Topic); err != nil {
		return nil, err
	}
	n, err := operator.Partitions(ctx, x.backend, form.Topic)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		_, err := operator.Admin(ctx, x.backend, form.Topic, form.Group)
		return []string{form.Topic}, err
	}
	if err := form.checkPartitions(n); err != nil {
		return nil, err
	}
	admin, ok := backend.As[backend.Admin](x.backend)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	for i := range n {
		part := partition.Topic(form.Topic, i)
		groups, err := admin.Groups(ctx, part)
		switch {
		case errors.Is(err, backend.ErrGone): // not made yet
		case err != nil:
			return nil, err
		case slices.Contains(groups, form.Group):
			topics = append(topics, part)
		}
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("no partition of %s has a group %q", form.Topic, form.Group)
	}
	return topics, nil
}

// refusePartition returns an error if topic is an inner one of a topic with partitions. There a change would
// avoid the rules of fits, and Options.Allow, which judges by the name of the program's topic.
func (x *executor) refusePartition(ctx context.Context, topic string) error {
	whole := partition.Whole(topic)
	if whole == "" {
		return nil
	}
	n, err := operator.Partitions(ctx, x.backend, whole)
	if err == nil && n > 0 {
		err = formError("%s belongs to %s, which has %d partitions: change the group there", topic, whole, n)
	}
	return err
}

// changeInTopic changes a group in one topic of the broker.
func (x *executor) changeInTopic(ctx context.Context, topic string, form *changeForm) error {
	if form.Verb == Pause || form.Verb == Resume {
		pauser, err := operator.Pauser(ctx, x.backend, topic, form.Group)
		switch {
		case err != nil:
			return err
		case form.Verb == Pause:
			return pauser.Pause(ctx, topic, form.Group, form.pause)
		}
		return pauser.Resume(ctx, topic, form.Group)
	}
	admin, err := operator.Admin(ctx, x.backend, topic, form.Group)
	switch {
	case err != nil:
		return err
	case form.Verb == Reset:
		return admin.ResetGroup(ctx, topic, form.Group, form.start)
	}
	return admin.DeleteGroup(ctx, topic, form.Group)
}

// groupResultText says how a group is after its change.
func groupResultText(form *changeForm) string {
	text := "group " + form.Group + " of " + form.Topic
	switch form.Verb {
	case Pause:
		if form.pause.Until.IsZero() {
			return text + " is paused until somebody resumes it"
		}
		return text + " is paused until " + formatTime(form.pause.Until)
	case Resume:
		return text + " is resumed"
	case Reset:
		return text + " starts again " + form.To()
	}
	return text + " is deleted"
}

// unsettled returns how many events a group has not settled in some topics together.
func (x *executor) unsettled(ctx context.Context, topics []string, group string) int64 {
	var sum int64
	for _, topic := range topics {
		n := operator.Unsettled(ctx, x.backend, topic, group)
		if n == backend.Unknown {
			return n
		}
		sum += n
	}
	return sum
}

// unsettled writes a number of events that a group has not settled.
func unsettled(n int64) string {
	if n == backend.Unknown {
		return "an unknown number of unsettled events"
	}
	return plural(int(n), "unsettled event")
}

// checkUnread returns an error unless a topic may be deleted: it exists, no group reads it, it has no
// dead letters, and it is none that the bus keeps for other topics or for itself.
func (x *executor) checkUnread(ctx context.Context, topic string) error {
	if err := x.refusePartition(ctx, topic); err != nil {
		return err
	}
	if isInternalTopic(topic) {
		return formError("%s is an internal topic of the bus", topic)
	}
	n, err := operator.Partitions(ctx, x.backend, topic)
	if err != nil {
		return err
	}
	if n > 0 {
		return formError("%s has %d partitions: delete it with eventbus topics delete", topic, n)
	}
	admin, err := operator.Admin(ctx, x.backend, topic, "")
	if err != nil {
		return err
	}
	groups, err := admin.Groups(ctx, topic)
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		return formError("%s read %s: delete them first", plural(len(groups), "group"), topic)
	}
	if strings.HasSuffix(topic, groupstats.LettersSuffix) {
		return formError("%s is a dead-letter topic: discard its dead letters instead", topic)
	}
	if t := x.sampler.Look(ctx).Topic(topic); t != nil && t.Letters != nil && (t.Letters.N > 0 || t.Letters.More) {
		return formError("%s has dead letters: discard them first", topic)
	}
	return nil
}

// isInternalTopic reports whether the bus keeps a topic of this name.
func isInternalTopic(topic string) bool {
	name := strings.TrimSuffix(topic, ".token") // of a schedule
	return topic == presence.Topic || partition.Whole(topic) != "" || strings.HasSuffix(name, later.Suffix) || recordsTopic(topic) != ""
}

// setUnread sets how much a topic has that no group reads.
func (p *confirmPage) setUnread(ctx context.Context, c *console) error {
	topic := p.Form.Topic
	found, err := readShared(ctx, c.reader, "unread\x00"+topic, func(ctx context.Context) (*unreadTopic, error) {
		if err := c.executor.checkUnread(ctx, topic); err != nil {
			return nil, err
		}
		u := new(unreadTopic)
		rows, _, err := c.openTopic(ctx, topic).newest(ctx, "", 1)
		if len(rows) > 0 {
			u.last = &rows[0]
		}
		if err != nil && !errors.Is(err, pages.ErrSpent) { // then the last event is not shown
			return nil, err
		}
		u.events, err = c.countEvents(ctx, []string{topic}, backend.StartEarliest)
		return u, err
	})
	if err == nil {
		p.Events, p.Last = found.events, found.last
	}
	return err
}

// An unreadTopic describes a topic that no group reads.
type unreadTopic struct {
	events *eventCount
	last   *eventRow // nil: not known
}

// deleteTopic deletes a topic that no group reads.
func (x *executor) deleteTopic(ctx context.Context, j *job, form *changeForm) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	if err := x.checkUnread(ctx, form.Topic); err != nil {
		return "", err
	}
	admin, err := operator.Admin(ctx, x.backend, form.Topic, "")
	if err == nil {
		err = admin.DeleteTopic(ctx, form.Topic)
	}
	if err != nil {
		return "", err
	}
	j.progress(1, "")
	return "topic " + form.Topic + " is deleted, with its events", nil
}
