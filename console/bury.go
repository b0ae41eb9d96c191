package console

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// A burial is an event of a group that an order makes a dead letter.
type burial struct {
	Topic   string // of the broker: the topic of the group, or one of its partitions
	Letters string // the topic of the dead letter
	Event   row
}

// URL returns the URL of the event.
func (b *burial) URL() string { return placeURL(b.Topic, b.Event.Position) }

// buryURL returns the URL of the page that asks before the event at a position of a topic, which may be
// a partition, is buried.
func buryURL(topic, group, position string) string {
	v := url.Values{"verb": {string(Bury)}, "topic": {topic}, "name": {group}, "at": {position}}
	if of, i, ok := partition.Cut(topic); ok {
		v.Set("topic", of)
		v.Set("partition", strconv.Itoa(i))
	}
	return "confirm?" + v.Encode()
}

// ofBurial reads the details of a Bury.
func (o *order) ofBurial(v url.Values) error {
	if o.Place = v.Get("at"); o.Place == "" || len(o.Place) > mostPlace {
		return wrong("%q is no position of an event", short(o.Place))
	}
	o.part = v.Get("partition")
	if n, err := strconv.Atoi(o.part); o.part != "" && (err != nil || n < 0 || n >= partition.Most) {
		return wrong("%q is no partition", short(o.part))
	}
	if o.why = strings.TrimSpace(v.Get("why")); len(o.why) > backend.MaxPauseText {
		return wrong("the reason is longer than %d bytes", backend.MaxPauseText)
	}
	return nil
}

const mostPlace = 256 // bytes of a position

// source returns the topic of the broker that has the event of a Bury.
func (o *order) source() string {
	if n, err := strconv.Atoi(o.part); err == nil {
		return partition.Topic(o.Topic, n)
	}
	return o.Topic
}

// burialOf checks the order of a Bury, and returns the topics of the event and of its letter.
func (c *changes) burialOf(ctx context.Context, o *order) (topic, letters string, err error) {
	if err := c.refuseInner(ctx, o.Topic); err != nil {
		return "", "", err
	}
	n, err := operator.Partitions(ctx, c.backend, o.Topic)
	if err != nil {
		return "", "", err
	}
	topic = o.source()
	if part, _ := strconv.Atoi(o.part); n > 0 && o.part == "" || o.part != "" && part >= n {
		return "", "", wrong("%s has %d partitions: the event is named by its partition and its position there", o.Topic, n)
	}
	if _, ok := backend.As[backend.Admin](c.backend); ok { // without, a group that does not exist is an error later
		if _, err := operator.Admin(ctx, c.backend, topic, o.Group); err != nil {
			return "", "", err
		}
	}
	letters, err = c.lettersOf(ctx, o.Topic, o.Group)
	return topic, letters, err
}

// lettersOf returns the topic for dead letters of a group.
func (c *changes) lettersOf(ctx context.Context, topic, group string) (string, error) {
	all, err := presence.Processes(ctx, c.backend)
	if err != nil && len(all) == 0 && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, backend.ErrDenied) {
		return "", err
	}
	name := presence.LettersOf(all, topic, group)
	if name == "" {
		return "", wrong("%s is a topic of dead letters, and no member of %s tells where its own dead letters go", topic, group)
	}
	return name, nil
}

// setBurial sets the event of a Bury.
func (p *confirmPage) setBurial(ctx context.Context, c *console) error {
	topic, letters, err := c.changes.burialOf(ctx, p.Order)
	if err != nil {
		return err
	}
	m, err := c.browse(topic).at(ctx, backend.StartEarliest, p.Order.Place)
	if err != nil {
		return err
	}
	p.Burial = &burial{topic, letters, newRow(c.redact, m, backend.StartEarliest)}
	return nil
}

// bury makes the event of an order a dead letter.
func (c *changes) bury(ctx context.Context, o *order) (string, error) {
	topic, name, err := c.burialOf(ctx, o)
	if err != nil {
		return "", err
	}
	letters, err := deadletter.Open(bound(c.backend), name)
	if err != nil {
		return "", err
	}
	text := "an operator, " + o.who + ", took the event away from the group"
	if o.why != "" {
		text += ": " + o.why
	}
	_, err = letters.Bury(ctx, deadletter.Burial{Topic: topic, Group: o.Group, Position: o.Place, Error: text})
	switch {
	case errors.Is(err, deadletter.ErrSettled):
		c.sampler.Changed(name) // its letter was there for a moment
		return "nothing is changed, because the group has settled the event meanwhile", nil
	case err != nil:
		return "", err
	}
	return "the event is a dead letter in " + name + ", and group " + o.Group + " does not get it again", nil
}
