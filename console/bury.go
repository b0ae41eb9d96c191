package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// A burial is an event of a group that a visitor wants to make a dead letter.
type burial struct {
	Topic   string // of the broker: the topic of the group, or one of its partitions
	Letters string // the topic of the dead letter
	Event   eventRow
	Failing presence.Event // as a member announces it; zero: no member does
}

// URL returns the URL of the event.
func (b *burial) URL() string { return eventURL(b.Topic, b.Event.Position) }

// burialOf checks the form of a Bury, and returns the event of it, without its row.
func (x *executor) burialOf(ctx context.Context, form *changeForm) (*burial, error) {
	if err := x.refusePartition(ctx, form.Topic); err != nil {
		return nil, err
	}
	n, err := operator.Partitions(ctx, x.backend, form.Topic)
	if err != nil {
		return nil, err
	}
	if part, _ := strconv.Atoi(form.Partition); n > 0 && form.Partition == "" || form.Partition != "" && part >= n {
		return nil, formError("%s has %d partitions: name the event by its partition and its position there", form.Topic, n)
	}
	b := &burial{Topic: form.sourceTopic()}
	if _, ok := backend.As[backend.Admin](x.backend); ok { // without, a group that does not exist is an error later
		if _, err := operator.Admin(ctx, x.backend, b.Topic, form.Group); err != nil {
			return nil, err
		}
	}
	all, err := presence.Processes(ctx, x.backend)
	if err != nil && len(all) == 0 && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, backend.ErrDenied) {
		return nil, err
	}
	b.Failing, _ = presence.EventAt(all, b.Topic, form.Group, form.Place)
	if b.Letters = presence.LettersOf(all, form.Topic, form.Group); b.Letters == "" {
		return nil, formError("%s is a dead-letter topic, and no member of %s announces where its own dead letters go", form.Topic, form.Group)
	}
	return b, nil
}

// setBurial sets the event of a Bury.
func (p *confirmPage) setBurial(ctx context.Context, c *console) (err error) {
	form := p.Form
	key := strings.Join([]string{"bury", form.Topic, form.Partition, form.Group, form.Place}, "\x00")
	p.Burial, err = readShared(ctx, c.reader, key, func(ctx context.Context) (*burial, error) {
		b, err := c.executor.burialOf(ctx, form)
		if err != nil {
			return nil, err
		}
		m, err := c.openTopic(ctx, b.Topic).eventAt(ctx, backend.StartEarliest, form.Place)
		if err != nil {
			return nil, err
		}
		b.Event = newEventRow(c.redact, m, backend.StartEarliest)
		return b, nil
	})
	return err
}

// bury makes the event of a form a dead letter.
func (x *executor) bury(ctx context.Context, j *job, form *changeForm) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	b, err := x.burialOf(ctx, form)
	if err != nil {
		return "", err
	}
	letters, err := deadletter.Open(withCallTimeout(x.backend), b.Letters)
	if err != nil {
		return "", err
	}
	_, err = letters.Bury(ctx, deadletter.Burial{
		Topic: b.Topic, Group: form.Group, Position: form.Place, By: form.who, Why: form.why, Error: b.Failing.Error, Attempts: b.Failing.Attempt,
	})
	switch {
	case errors.Is(err, deadletter.ErrSettled):
		x.sampler.Changed(b.Letters) // its letter was there for a moment
		return "nothing has changed, because the group has settled the event in the meantime", nil
	case err != nil:
		return "", err
	}
	j.progress(1, "")
	j.setDeadLetterTopic(b.Letters)
	return "the event is now a dead letter in " + b.Letters + ", and group " + form.Group + " will not get it again; later events of its key continue in about ten seconds", nil
}

const maxBuries = 50 // groups

// buriesOf returns the groups of a topic, which may be a partition, for which the visitor may bury the
// event at a position.
func buriesOf(c *console, r *http.Request, topic, position string) (links []groupLink) {
	of, part := topic, ""
	if whole, n, ok := partition.Cut(topic); ok {
		of, part = whole, strconv.Itoa(n)
	}
	s := c.sampler.Look(r.Context())
	t := s.Topic(of)
	if t == nil {
		return nil
	}
	var all []presence.Process
	if s.Announced {
		all, _ = c.announced(r.Context()) // without heartbeats it is unknown whether the event fails
	}
	for _, g := range t.Groups[:min(len(t.Groups), maxBuries)] {
		if offers(c, r, Action{Topic: of, Group: g.Name, Place: position, Partition: part}, Bury) {
			l := groupLink{Topic: of, Group: g.Name, URL: buryURL(topic, g.Name, position)}
			if l.Failing, _ = presence.EventAt(all, topic, g.Name, position); c.redact != nil {
				l.Failing.Error = ""
			}
			links = append(links, l)
		}
	}
	return links
}

// A groupLink leads to the page that asks before an event of a group is buried.
type groupLink struct {
	Topic, Group string
	URL          string
	Failing      presence.Event // without its error if the console hides parts of events; zero: not known
}
