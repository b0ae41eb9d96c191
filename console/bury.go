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
	Failing presence.Event // as a member announces it; zero: no member does
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
	if text := v.Get("partition"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= partition.Most {
			return wrong("%q is no partition", short(text))
		}
		o.Partition = strconv.Itoa(n)
	}
	if o.why = strings.TrimSpace(v.Get("why")); len(o.why) > backend.MaxPauseText {
		return wrong("the reason is longer than %d bytes", backend.MaxPauseText)
	}
	return nil
}

const mostPlace = 256 // bytes of a position

// source returns the topic of the broker that has the event of a Bury.
func (o *order) source() string {
	if n, err := strconv.Atoi(o.Partition); err == nil {
		return partition.Topic(o.Topic, n)
	}
	return o.Topic
}

// burialOf checks the order of a Bury, and returns the event of it, without its row.
func (c *changes) burialOf(ctx context.Context, o *order) (*burial, error) {
	if err := c.refuseInner(ctx, o.Topic); err != nil {
		return nil, err
	}
	n, err := operator.Partitions(ctx, c.backend, o.Topic)
	if err != nil {
		return nil, err
	}
	if part, _ := strconv.Atoi(o.Partition); n > 0 && o.Partition == "" || o.Partition != "" && part >= n {
		return nil, wrong("%s has %d partitions: the event is named by its partition and its position there", o.Topic, n)
	}
	b := &burial{Topic: o.source()}
	if _, ok := backend.As[backend.Admin](c.backend); ok { // without, a group that does not exist is an error later
		if _, err := operator.Admin(ctx, c.backend, b.Topic, o.Group); err != nil {
			return nil, err
		}
	}
	all, err := presence.Processes(ctx, c.backend)
	if err != nil && len(all) == 0 && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, backend.ErrDenied) {
		return nil, err
	}
	b.Failing, _ = presence.EventAt(all, b.Topic, o.Group, o.Place)
	if b.Letters = presence.LettersOf(all, o.Topic, o.Group); b.Letters == "" {
		return nil, wrong("%s is a topic of dead letters, and no member of %s tells where its own dead letters go", o.Topic, o.Group)
	}
	return b, nil
}

// setBurial sets the event of a Bury.
func (p *confirmPage) setBurial(ctx context.Context, c *console) (err error) {
	o := p.Order
	key := strings.Join([]string{"bury", o.Topic, o.Partition, o.Group, o.Place}, "\x00")
	p.Burial, err = reading(ctx, c.readings, key, func(ctx context.Context) (*burial, error) {
		b, err := c.changes.burialOf(ctx, o)
		if err != nil {
			return nil, err
		}
		m, err := c.browse(ctx, b.Topic).at(ctx, backend.StartEarliest, o.Place)
		if err != nil {
			return nil, err
		}
		b.Event = newRow(c.redact, m, backend.StartEarliest)
		return b, nil
	})
	return err
}

// bury makes the event of an order a dead letter.
func (c *changes) bury(ctx context.Context, j *job, o *order) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTime)
	defer cancel()
	b, err := c.burialOf(ctx, o)
	if err != nil {
		return "", err
	}
	letters, err := deadletter.Open(bound(c.backend), b.Letters)
	if err != nil {
		return "", err
	}
	_, err = letters.Bury(ctx, deadletter.Burial{
		Topic: b.Topic, Group: o.Group, Position: o.Place, By: o.who, Why: o.why, Error: b.Failing.Error, Attempts: b.Failing.Attempt,
	})
	switch {
	case errors.Is(err, deadletter.ErrSettled):
		c.sampler.Changed(b.Letters) // its letter was there for a moment
		return "nothing is changed, because the group has settled the event meanwhile", nil
	case err != nil:
		return "", err
	}
	j.progress(1, "")
	j.stored(b.Letters)
	return "the event is a dead letter in " + b.Letters + ", and group " + o.Group + " does not get it again; later events of its key go on in about ten seconds", nil
}
