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
	Order  *order
	Tally  *tally  // of letters; nil: the change is none of letters
	Lost   string  // the unsettled events of a group
	Comes  *tally  // the events behind the place of a Reset, or of a topic to be deleted
	Last   *row    // the last event of a topic to be deleted; nil: not known
	Burial *burial // nil: the change is no Bury
	Parts  int     // the partitions of the group's topic; 0: none
	Back   string  // URL

	Once time.Duration // how long the backend knows a redriven event again; 0: not at all
}

// A tally counts the letters that a change would meet.
type tally struct {
	N       int
	Looping int  // of N, that were redriven too often
	More    bool // there may be more
	Read    int
	Known   int // letters that were counted before; 0: their number is not known
}

// String returns the number as text.
func (t *tally) String() string {
	if t.More && t.Known >= t.N {
		return "about " + number(t.Known)
	}
	if t.More {
		return number(t.N) + " or more"
	}
	return number(t.N)
}

// confirm shows the page that asks before a change. It only reads.
func (c *console) confirm(w http.ResponseWriter, r *http.Request) {
	o, err := orderOf(r.URL.Query())
	if err == nil && !o.asks() {
		err = errNotFound
	}
	if err == nil {
		o.DryRun = true
		err = c.allow(r, o.Action)
	}
	if err == nil {
		err = c.changes.supports(o.Verb)
	}
	if err == nil && o.Verb.onLetters() && o.Place == "" {
		err = c.changes.jobs.free(o.Topic)
	}
	body := &confirmPage{Order: o, Once: backend.LimitsOf(c.backend).OnceWindow}
	if err == nil {
		err = c.dryRun(r.Context(), body)
	}
	if err != nil {
		c.fail(w, r, "Before a change", err)
		return
	}
	c.render(w, r, http.StatusOK, "confirm", &page{Title: title(&o.Action), Permit: c.permit(w, r, o.Action, o.Verb), Body: body})
}

// dryRun sets how much a change would take.
func (c *console) dryRun(ctx context.Context, p *confirmPage) (err error) {
	o := p.Order
	p.Back = o.page()
	switch o.Verb {
	case Bury:
		return p.setBurial(ctx, c)
	case DeleteTopic:
		return p.setUnread(ctx, c)
	}
	if o.Verb.onGroup() {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		topics, err := c.changes.topicsOf(ctx, o)
		if err != nil {
			return err
		}
		if p.Parts, err = operator.Partitions(ctx, c.backend, o.Topic); err != nil {
			return err
		}
		p.Lost = unsettled(c.changes.unsettled(ctx, topics, o.Group))
		if o.Verb == Reset {
			p.Comes, err = reading(ctx, c.readings, "behind\x00"+o.Topic+"\x00"+o.to, func(ctx context.Context) (*tally, error) {
				return c.behind(ctx, topics, o.start)
			})
		}
		return err
	}
	if o.Place == "" {
		o.before = time.Now().UTC() // a letter of a later failure is none that the visitor has seen
	}
	key := strings.Join([]string{"count", o.Topic, string(o.from), o.Place, o.seen, o.search.values().Encode()}, "\x00")
	p.Tally, err = reading(ctx, c.readings, key, func(ctx context.Context) (*tally, error) { return c.browse(ctx, o.Topic).count(ctx, o) })
	if err != nil {
		return err
	}
	if p.Tally.More && o.from == backend.StartEarliest {
		t := *p.Tally // it is shared
		if of := c.sampler.Look(ctx).Topic(o.Topic); of != nil {
			t.Known, _ = known(of.Letters, &o.search)
		}
		p.Tally = &t
	}
	o.found = p.Tally.String()
	return nil
}

// behind counts the events of topics from a place on, within the bounds of a request.
func (r *readings) behind(ctx context.Context, topics []string, from backend.Start) (*tally, error) {
	t, left := new(tally), r.browse(ctx, "").left
	for _, topic := range topics {
		b := r.browse(ctx, topic)
		b.left = left
		read := b.reader(from)
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
		left = b.left
	}
	return t, nil
}

// count counts the letters of an order, within the bounds of a request.
func (b *browser) count(ctx context.Context, o *order) (*tally, error) {
	t := new(tally)
	read := b.reader(o.from)
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
			t.add(b, o, &ms[i])
		}
		if o.Place != "" && ms[len(ms)-1].Position >= o.Place {
			return t, nil
		}
	}
}

func (t *tally) add(b *browser, o *order, m *backend.Message) {
	l, ok := o.takes(b.redact, m)
	if !ok {
		return
	}
	t.N++
	if l.stored.Redriven >= mostRedrives {
		t.Looping++
	}
}

// title says in a few words which change an action is.
func title(a *Action) string {
	switch {
	case a.Verb == Bury:
		return "Make an event of " + a.Group + " of " + a.Topic + " a dead letter"
	case a.Verb == DeleteTopic:
		return "Delete the topic " + a.Topic
	case a.Verb.onGroup():
		text := map[Verb]string{Pause: "Pause ", Resume: "Resume ", Reset: "Reset ", DeleteGroup: "Delete "}[a.Verb]
		return text + a.Group + " of " + a.Topic
	}
	text := map[Verb]string{Redrive: "Redrive ", Discard: "Discard ", Edit: "Edit and redrive ", Stop: "Stop a job on "}[a.Verb]
	if a.Place != "" {
		return text + "one dead letter of " + a.Topic
	}
	return text + "dead letters of " + a.Topic
}
