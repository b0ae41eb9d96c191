package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/lifecycle"
)

// A lifecyclePage is the page of the newest lifecycle records about a topic.
type lifecyclePage struct {
	Topic   string
	Group   string // only the records of this group; empty: of all
	Records []record
	Read    int // records among which the page has looked
	Failure *failure
}

// mostShown is the most records of a page.
const mostShown = 50

func (c *console) lifecycle(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	body, code := &lifecyclePage{Topic: topic, Group: r.URL.Query().Get("group")}, http.StatusOK
	all, err := c.recordsOf(r.Context(), topic)
	if err != nil {
		var f failure
		code, f = failureOf(err)
		body.Failure = &f
	}
	body.Read = len(all)
	for _, r := range slices.Backward(all) {
		if len(body.Records) < mostShown && (body.Group == "" || r.Group == body.Group) {
			body.Records = append(body.Records, r)
		}
	}
	c.render(w, r, code, "lifecycle", &page{Title: "Lifecycle of events of " + topic, Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// lifecycleURL returns the URL of the records about the events of a topic. Without a group they are of
// all groups.
func lifecycleURL(topic, group string) string {
	v := url.Values{"topic": {topic}}
	if group != "" {
		v.Set("group", group)
	}
	return "lifecycle?" + v.Encode()
}

// recordsTopic returns the topic about whose events a topic of this name has records; empty: none.
func recordsTopic(name string) string {
	of, ok := strings.CutSuffix(name, lifecycle.Topic(""))
	if !ok {
		return ""
	}
	return of
}
