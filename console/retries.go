package console

import (
	"net/http"

	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/lifecycle"
)

// retries are the events of a group that wait for another attempt, as far as lifecycle records tell.
type retries struct {
	Topic   string
	Rows    []record         // the next attempt first
	More    int              // waiting events that are not shown
	Delayed groupstats.Count // events that wait, as the backend tells
	Known   bool             // the topic has lifecycle records
	Named   bool             // members name events that fail
	Read    int              // the records among which the page has looked
	Failure *failure
}

// retriesOf returns the retries of a group. It reads only if the figures know of records.
func (c *console) retriesOf(r *http.Request, s *groupstats.Snapshot, g *groupstats.Group) *retries {
	w := &retries{Topic: g.Topic, Delayed: g.Delayed}
	if w.Known = s.Topic(lifecycle.Topic(g.Topic)) != nil; !w.Known {
		return w
	}
	all, err := c.recordsOf(r.Context(), g.Topic)
	if err != nil {
		_, f := failureOf(err)
		w.Failure = &f
		return w
	}
	w.Read, w.Rows = len(all), waiting(all, g.Name)
	if w.More = max(len(w.Rows)-pageRows, 0); w.More > 0 {
		w.Rows = w.Rows[:pageRows]
	}
	return w
}
