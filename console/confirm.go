package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A confirmPage asks before a change, and says how much it would change.
type confirmPage struct {
	Form    *changeForm
	Letters *eventCount // dead letters that match; nil: not a change of dead letters
	Lost    string      // the unsettled events of a group
	Events  *eventCount // events after the position of a Reset, or of the topic to delete
	Last    *eventRow   // the last event of a topic to be deleted; nil: not known
	Burial  *burial     // nil: the change is no Bury
	Parts   int         // the partitions of the group's topic; 0: none
	Back    string      // URL

	Once time.Duration // how long the backend knows a redriven event again; 0: not at all
}

// An eventCount says how many events or dead letters a change would affect.
type eventCount struct {
	N       int
	Looping int  // of N, that were redriven too often
	More    bool // there may be more
	Read    int
	Known   int // dead letters that were counted before; 0: their number is not known
}

// String returns the number as text.
func (t *eventCount) String() string {
	if t.More && t.Known >= t.N {
		return "about " + formatNumber(t.Known)
	}
	if t.More {
		return formatNumber(t.N) + " or more"
	}
	return formatNumber(t.N)
}

// confirm shows the page that asks before a change. It only reads.
func (c *console) confirm(w http.ResponseWriter, r *http.Request) {
	form, err := parseForm(r.URL.Query())
	if err == nil && !form.needsConfirmation() {
		err = errNotFound
	}
	if err == nil {
		form.DryRun = true
		err = c.allow(r, form.Action)
	}
	if err == nil {
		err = c.executor.supports(form.Verb)
	}
	if err == nil && form.Verb.onLetters() && form.Place == "" {
		err = c.executor.jobs.checkFree(form.Topic)
	}
	body := &confirmPage{Form: form, Once: backend.LimitsOf(c.backend).OnceWindow}
	if err == nil {
		err = c.dryRun(r.Context(), body)
	}
	if err != nil {
		c.fail(w, r, "Before a change", err)
		return
	}
	c.render(w, r, http.StatusOK, "confirm", &page{Title: title(&form.Action), Permit: c.permissions(w, r, form.Action, form.Verb), Body: body})
}

// dryRun sets how much a change would take.
func (c *console) dryRun(ctx context.Context, p *confirmPage) (err error) {
	form := p.Form
	p.Back = form.pageURL()
	switch form.Verb {
	case Bury:
		return p.setBurial(ctx, c)
	case DeleteTopic:
		return p.setUnread(ctx, c)
	}
	if form.Verb.onGroup() {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		topics, err := c.executor.topicsOf(ctx, form)
		if err != nil {
			return err
		}
		if p.Parts, err = operator.Partitions(ctx, c.backend, form.Topic); err != nil {
			return err
		}
		p.Lost = unsettled(c.executor.unsettled(ctx, topics, form.Group))
		if form.Verb == Reset {
			p.Events, err = readShared(ctx, c.reader, "behind\x00"+form.Topic+"\x00"+form.to, func(ctx context.Context) (*eventCount, error) {
				return c.countEvents(ctx, topics, form.start)
			})
		}
		return err
	}
	if form.Place == "" {
		form.before = time.Now().UTC() // the visitor has not seen dead letters of later failures
	}
	key := strings.Join([]string{"count", form.Topic, string(form.from), form.Place, form.fingerprint, form.search.values().Encode()}, "\x00")
	p.Letters, err = readShared(ctx, c.reader, key, func(ctx context.Context) (*eventCount, error) {
		return c.openTopic(ctx, form.Topic).countDeadLetters(ctx, form)
	})
	if err != nil {
		return err
	}
	if p.Letters.More && form.from == backend.StartEarliest {
		t := *p.Letters // it is shared
		if of := c.sampler.Look(ctx).Topic(form.Topic); of != nil {
			t.Known, _ = knownCount(of.Letters, &form.search)
		}
		p.Letters = &t
	}
	form.found = p.Letters.String()
	return nil
}

func (t *eventCount) add(tr *topicReader, form *changeForm, m *backend.Message) {
	l, ok := form.matches(tr.redact, m)
	if !ok {
		return
	}
	t.N++
	if l.stored.Redriven >= maxRedrives {
		t.Looping++
	}
}

// countEvents counts the events of topics starting at from, within the bounds of a request.
func (r *reader) countEvents(ctx context.Context, topics []string, from backend.Start) (*eventCount, error) {
	t, left := new(eventCount), r.openTopic(ctx, "").left
	for _, topic := range topics {
		tr := r.openTopic(ctx, topic)
		tr.left = left
		read := tr.pagesFrom(from)
		for {
			ms, err := read.Next(ctx, pages.MostPage)
			if errors.Is(err, pages.ErrSpent) {
				t.More = true
				return t, nil
			}
			if err != nil {
				return nil, err
			}
			if len(ms) == 0 {
				break
			}
			t.N += len(ms)
		}
		left = tr.left
	}
	return t, nil
}

// countDeadLetters counts the dead letters that a form selects, within the bounds of a request.
func (tr *topicReader) countDeadLetters(ctx context.Context, form *changeForm) (*eventCount, error) {
	t := new(eventCount)
	read := tr.pagesFrom(form.from)
	for {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent):
			t.More = true
			return t, nil
		case err != nil:
			return nil, err
		case len(ms) == 0:
			return t, nil
		}
		for i := range ms {
			t.Read++
			t.add(tr, form, &ms[i])
		}
		if form.Place != "" && ms[len(ms)-1].Position >= form.Place {
			return t, nil
		}
	}
}
