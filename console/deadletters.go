package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// A lettersPage is the page of the dead letters in one topic.
type lettersPage struct {
	Topic   string
	Group   string              // only the classes of this group; empty: of all
	Letters *groupstats.Letters // nil: not counted yet
	Busy    bool                // the dead letters of too many topics are being counted
	Events  *eventList          // dead letters of one class or of a search; nil: none were requested
	Form    eventList           // the fields of the search
	Jobs    []*job              // that change the dead letters
}

func (c *console) letters(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	q := r.URL.Query()
	body := &lettersPage{Topic: topic, Busy: !c.sampler.Want(topic)}
	s := c.sampler.Look(r.Context())
	if t := s.Topic(topic); t != nil {
		body.Letters = t.Letters
	}
	search := searchOf(q)
	body.Group = search.Group
	if body.Letters != nil && body.Group != "" {
		of := body.Letters.Of(body.Group)
		body.Letters = &of
	}
	body.Form = eventList{Search: search, Since: q.Get("since"), Hidden: url.Values{"topic": {topic}}}
	if body.Group != "" {
		body.Form.Hidden.Set("group", body.Group)
	}
	code := http.StatusOK
	if !search.empty() && !isPart(r) {
		code, body.Events = c.listEvents(r, listing{page: "letters", param: "topic", topic: topic, number: -1})
	}
	p := &page{Title: "Dead letters in " + topic, Live: true, Figures: s, Body: body}
	if c.executor != nil {
		body.Jobs = c.executor.jobs.list(topic)
	}
	if c.executor != nil && !body.None() {
		p.Permit = c.permissions(w, r, Action{Topic: topic, Filter: filterOf(&search)}, Redrive, Discard)
	}
	c.render(w, r, code, "letters", p)
}

// None reports whether the topic is certainly none of dead letters: its name is not the usual one, and none
// was counted.
func (p *lettersPage) None() bool {
	l := p.Letters
	return !strings.HasSuffix(p.Topic, groupstats.LettersSuffix) && l != nil && p.Group == "" && l.N == 0 && !l.More && !l.Unknown
}

// Chosen describes the filter, such as "with id 7", or is empty if there is none. It leaves out
// header values, which may be secrets.
func (p *lettersPage) Chosen() string {
	f := filterOf(&p.Form.Search)
	text := f.text()
	if f.Value != "" && f.Header == "" {
		text = strings.TrimPrefix(text+", a header value", ", ")
	}
	if text != "" {
		text = "with " + text
	}
	if p.Form.Since != "" {
		text = strings.TrimPrefix(text+" since "+p.Form.Since, " ")
	}
	return text
}

// Meant names the dead letters that the buttons change, with their number if it is known.
func (p *lettersPage) Meant() string {
	all := p.Chosen() == ""
	if n, ok := knownCount(p.Letters, &p.Form.Search); ok && p.Form.Since == "" {
		text := plural(n, "dead letter")
		if all && n != 1 {
			text = "all " + text
		}
		return text
	}
	if all {
		return "all dead letters"
	}
	return "the matching dead letters"
}

// Class names the class that the buttons change, or is empty for any class.
func (p *lettersPage) Class() string {
	k := p.Form.Search.Kind
	if _, counted := knownCount(p.Letters, &p.Form.Search); k == nil || !counted {
		return ""
	}
	return cmp.Or(k.ErrorClass, k.Reason)
}

// knownCount returns how many dead letters match a search, if the counts per class are enough to know.
func knownCount(l *groupstats.Letters, s *search) (int, bool) {
	if l == nil || l.Unknown || l.More || l.Again || s.ID+s.Key+s.Type+s.Header+s.Value != "" {
		return 0, false
	}
	if s.Kind == nil {
		if s.Group != "" {
			of := l.Of(s.Group)
			return of.N, !of.More
		}
		return l.N, true
	}
	if s.Group != "" {
		return 0, false
	}
	for _, c := range l.Classes {
		if c.Kind == *s.Kind {
			return c.N, true
		}
	}
	return 0, false
}

// Fields returns the fields of a form that names the dead letters.
func (p *lettersPage) Fields() url.Values {
	v := p.Form.Search.values()
	v.Set("topic", p.Topic)
	if p.Form.Since != "" {
		v.Set("since", p.Form.Since)
	}
	return v
}

// Further reports whether a class is of dead letters for which there is no class of their own.
func (p *lettersPage) Further(c groupstats.Class) bool {
	return c.Reason == groupstats.Further && c.Group == ""
}

// A shownDeadLetter is a dead letter that a visitor can change.
type shownDeadLetter struct {
	event  eventbus.Event      // as the pages show it
	stored eventbus.DeadLetter // of the letter as it is stored, so that Redact moves no bound
}

// deadLetterOf returns the letter that m stores. It reports false if m is no dead letter, and if the pages
// do not show m as one.
func deadLetterOf(r groupstats.Redact, m *backend.Message) (l shownDeadLetter, ok bool) {
	event := eventbus.EventOf(m)
	if l.stored, ok = eventbus.DeadLetterOf(&event); !ok {
		return l, false
	}
	l.event = r.EventOf(m)
	_, ok = eventbus.DeadLetterOf(&l.event)
	return l, ok
}

// fingerprint returns a text that is another one if the pages show another letter, or this one otherwise. The
// form of one dead letter has it, because a position can have another letter when the form comes back.
func fingerprint(e *eventbus.Event) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []any{e.ID, e.Type, e.Key, sortHeaders(e.Headers), e.Payload}))
	return hex.EncodeToString(sum[:])
}

// sortHeaders returns headers by name. Their order has no meaning, and differs between two reads.
func sortHeaders(all eventbus.Headers) eventbus.Headers {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b eventbus.Header) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return all
}
