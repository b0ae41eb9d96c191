package console

import (
	"context"
	"net/http"
	"net/url"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// A groupPage is the page of one group.
type groupPage struct {
	Group *groupstats.Group
	Topic *groupstats.Topic

	Owners  *owners  // nil: the topic has no partitions
	Retries *retries // nil: there is no such group
	Members *members // nil: there is no such group

	Pauses, Resumes bool // a pause, or its end, may change something
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
		body.Retries.Named = len(body.Members.Failing.Rows) > 0
		if body.Members.Failing.Buries = offers(c, r, Action{Topic: topic, Group: name}, Bury); body.Members.Failing.Buries {
			body.Members.Failing.bury(c.changes.jobs)
		}
		p.Permit = c.permit(w, r, Action{Topic: topic, Group: name}, Pause, Resume, Reset, DeleteGroup)
		body.Pauses, body.Resumes = true, true
		if p.Permit != nil {
			if paused, known := c.pausedNow(r.Context(), body.Topic, g.Name); known {
				body.Pauses, body.Resumes = !paused, paused
			}
		}
	}
	c.render(w, r, code, "group", p)
}

// Fields returns the fields of a form that names the group.
func (p *groupPage) Fields() url.Values {
	return url.Values{"topic": {p.Group.Topic}, "name": {p.Group.Name}}
}

// pausedNow asks the backend whether a group is paused, because the figures may be some seconds old and a
// visitor may have paused it since then. known is false if the group has partitions, which may differ, or
// the backend does not tell.
func (r *readings) pausedNow(ctx context.Context, t *groupstats.Topic, group string) (paused, known bool) {
	pauser, ok := backend.As[backend.Pauser](r.backend)
	if !ok || len(t.Partitions) > 0 {
		return false, false
	}
	paused, err := reading(ctx, r, "paused\x00"+t.Name+"\x00"+group, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		p, err := pauser.Paused(ctx, t.Name, group)
		return !p.Since.IsZero(), err
	})
	return paused, err == nil
}
