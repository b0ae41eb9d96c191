package console

import (
	"net/http"
	"net/url"

	"github.com/seed41896749/eventbus/internal/figures"
)

// A lettersPage is the page of the dead letters in one topic.
type lettersPage struct {
	Topic   string
	Group   string           // only the classes of this group; empty: of all
	Letters *figures.Letters // nil: not counted yet
	Busy    bool             // letters of too many topics are counted
	Events  *events          // letters of one class or of a search; nil: none are asked for
	Form    events           // the fields of the search
	Jobs    []*job           // that change the letters
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
	body.Form = events{Search: search, Since: q.Get("since"), Hidden: url.Values{"topic": {topic}}}
	if body.Group != "" {
		body.Form.Hidden.Set("group", body.Group)
	}
	code := http.StatusOK
	if !search.empty() && !isPart(r) {
		code, body.Events = c.list(r, listing{page: "letters", param: "topic", topic: topic, number: -1})
	}
	p := &page{Title: "Dead letters in " + topic, Live: true, Figures: s, Body: body}
	if c.changes != nil {
		body.Jobs = c.changes.jobs.list(topic)
		p.Permit = c.permit(w, r, Action{Topic: topic, Filter: filterOf(&search)}, Redrive, Discard)
	}
	c.render(w, r, code, "letters", p)
}

// Chosen reports whether a filter is set.
func (p *lettersPage) Chosen() bool { return !p.Form.Search.empty() || p.Form.Since != "" }

// Fields returns the fields of a form that names the letters.
func (p *lettersPage) Fields() url.Values {
	v := p.Form.Search.values()
	v.Set("topic", p.Topic)
	if p.Form.Since != "" {
		v.Set("since", p.Form.Since)
	}
	return v
}

// groupLettersURL returns the URL of the letters of one group.
func groupLettersURL(topic, group string) string {
	return "letters?" + url.Values{"topic": {topic}, "group": {group}}.Encode()
}

// Further reports whether a class is of letters for which there is no class of their own.
func (p *lettersPage) Further(c figures.Class) bool {
	return c.Reason == figures.Further && c.Group == ""
}
