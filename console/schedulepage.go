package console

import (
	"net/http"
	"net/url"

	"github.com/seed41896749/eventbus/internal/later"
)

// A schedulePage is the page of the scheduled and recurring events of a topic.
type schedulePage struct {
	Topic   string
	Plan    *plan // nil: Failure says why
	Failure *failure
}

func (c *console) schedule(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	body, code := &schedulePage{Topic: topic}, http.StatusOK
	p, err := c.planOf(r.Context(), topic)
	if body.Plan = p; err != nil {
		var f failure
		code, f = failureOf(err)
		body.Plan, body.Failure = nil, &f
	}
	c.render(w, r, code, "schedule", &page{Title: "Schedule of " + topic, Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// scheduleURL returns the URL of the schedule of a topic.
func scheduleURL(topic string) string { return "schedule?" + url.Values{"topic": {topic}}.Encode() }

// Link returns the URL of an event that waits.
func (p *schedulePage) Link(r planned) string { return r.link(later.Topic(p.Topic)) }
