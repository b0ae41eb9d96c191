package console

import (
	"net/http"
	"net/url"

	"github.com/seed41896749/eventbus/internal/figures"
)

// A groupPage is the page of one group.
type groupPage struct {
	Group *figures.Group
	Topic *figures.Topic

	Owners  *owners  // nil: the topic has no partitions
	Retries *retries // nil: there is no such group
	Members *members // nil: there is no such group
}

func (c *console) group(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	name := r.URL.Query().Get("name")
	s := c.sampler.Look(r.Context())
	body, code := groupPage{}, http.StatusOK
	if body.Topic = s.Topic(topic); body.Topic != nil {
		body.Group = body.Topic.Group(name)
	}
	if body.Group == nil {
		if code = http.StatusNotFound; s.Taken.IsZero() {
			code = http.StatusServiceUnavailable
		}
	}
	p := &page{Title: name + " of " + topic, Live: true, Figures: s, Body: &body}
	if g := body.Group; g != nil {
		body.Owners, body.Retries = c.ownersOf(r, body.Topic, g.Name), c.retriesOf(r, s, g)
		body.Members = c.membersOf(r.Context(), s, g.Topic, g.Name)
		p.Permit = c.permit(w, r, Action{Topic: topic, Group: name}, Pause, Resume, Reset, DeleteGroup)
	}
	c.render(w, r, code, "group", p)
}

// Fields returns the fields of a form that names the group.
func (p *groupPage) Fields() url.Values {
	return url.Values{"topic": {p.Group.Topic}, "name": {p.Group.Name}}
}
