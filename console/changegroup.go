package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

const groupTime = 30 * time.Second // of one change of a group

// changeGroup pauses, resumes, resets or deletes a group: in its topic, or in each partition.
func (c *changes) changeGroup(ctx context.Context, j *job, o *order) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTime)
	defer cancel()
	topics, err := c.topicsOf(ctx, o)
	if err != nil {
		return "", err
	}
	for i, topic := range topics {
		if err := c.changeOne(ctx, topic, o); err != nil {
			if len(topics) > 1 {
				err = fmt.Errorf("%s: %w", topic, err)
			}
			return "", err
		}
		j.progress(i+1, "")
	}
	text := groupResult(o)
	if len(topics) > 1 {
		text += ", in " + plural(len(topics), "partition")
	}
	if o.Verb != DeleteGroup {
		text += ", and has " + unsettled(c.unsettled(ctx, topics, o.Group))
	}
	return text, nil
}

// topicsOf returns the topics of the broker in which the group of an order is: the topic itself, or
// its partitions.
func (c *changes) topicsOf(ctx context.Context, o *order) (topics []string, err error) {
	if err := c.refuseInner(ctx, o.Topic); err != nil {
		return nil, err
	}
	n, err := operator.Partitions(ctx, c.backend, o.Topic)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		_, err := operator.Admin(ctx, c.backend, o.Topic, o.Group)
		return []string{o.Topic}, err
	}
	if err := o.fits(n); err != nil {
		return nil, err
	}
	admin, ok := backend.As[backend.Admin](c.backend)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	for i := range n {
		part := partition.Topic(o.Topic, i)
		groups, err := admin.Groups(ctx, part)
		switch {
		case errors.Is(err, backend.ErrGone): // not made yet
		case err != nil:
			return nil, err
		case slices.Contains(groups, o.Group):
			topics = append(topics, part)
		}
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("no partition of %s has the group %q", o.Topic, o.Group)
	}
	return topics, nil
}

// refuseInner returns an error if topic is an inner one of a topic with partitions. There a change would
// avoid the rules of fits, and Options.Allow, which judges by the name of the program's topic.
func (c *changes) refuseInner(ctx context.Context, topic string) error {
	whole := partition.Whole(topic)
	if whole == "" {
		return nil
	}
	n, err := operator.Partitions(ctx, c.backend, whole)
	if err == nil && n > 0 {
		err = wrong("%s is a part of %s, which has %d partitions: change the group there", topic, whole, n)
	}
	return err
}

// fits returns an error if a change cannot be one of n partitions together.
func (o *order) fits(n int) error {
	switch _, after := o.start.After(); {
	case o.Verb == DeleteGroup:
		return wrong("%s has %d partitions, whose owners rest on the group: stop its members, and delete it with eventbus groups delete", o.Topic, n)
	case o.Verb == Reset && after:
		return wrong("%s has %d partitions, and each has positions of its own: give a time", o.Topic, n)
	}
	return nil
}

// changeOne changes a group in one topic of the broker.
func (c *changes) changeOne(ctx context.Context, topic string, o *order) error {
	if o.Verb == Pause || o.Verb == Resume {
		pauser, err := operator.Pauser(ctx, c.backend, topic, o.Group)
		switch {
		case err != nil:
			return err
		case o.Verb == Pause:
			return pauser.Pause(ctx, topic, o.Group, o.pause)
		}
		return pauser.Resume(ctx, topic, o.Group)
	}
	admin, err := operator.Admin(ctx, c.backend, topic, o.Group)
	switch {
	case err != nil:
		return err
	case o.Verb == Reset:
		return admin.ResetGroup(ctx, topic, o.Group, o.start)
	}
	return admin.DeleteGroup(ctx, topic, o.Group)
}

// groupResult says how a group is after its change.
func groupResult(o *order) string {
	text := "group " + o.Group + " of " + o.Topic
	switch o.Verb {
	case Pause:
		if o.pause.Until.IsZero() {
			return text + " is paused until somebody resumes it"
		}
		return text + " is paused until " + when(o.pause.Until)
	case Resume:
		return text + " goes on"
	case Reset:
		return text + " begins again " + o.To()
	}
	return text + " is deleted"
}

// unsettled returns how many events a group has not settled in some topics together.
func (c *changes) unsettled(ctx context.Context, topics []string, group string) int64 {
	var sum int64
	for _, topic := range topics {
		n := operator.Unsettled(ctx, c.backend, topic, group)
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
