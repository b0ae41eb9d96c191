package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/operator"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A topicPage is the page of one topic: its groups, and some of its events.
type topicPage struct {
	Name   string
	Topic  *groupstats.Topic // nil: unknown at the last update
	Events *eventList        // nil: a refresh of the live parts
	Chosen int               // the partition whose events are shown; -1: the topic itself
}

// eventList are the part of a page that lists events.
type eventList struct {
	Source  string // the topic that is read: a partition, or the topic of the page
	Search  search
	Found   bool   // the rows are results of a search
	Oldest  bool   // oldest first
	Since   string // the time from which on the rows are, as given
	Rows    []eventRow
	Read    int    // events that the search has read in this request
	Older   string // URLs; empty: there are none
	Newer   string
	Next    string // where a search continues
	Failure *failure
	Hidden  url.Values // parameters that a form keeps
}

// Link returns the URL of a row's event.
func (e *eventList) Link(r eventRow) string { return r.link(e.Source) }

func (c *console) topic(w http.ResponseWriter, r *http.Request) {
	name, ok := c.topicParam(w, r, "name")
	if !ok {
		return
	}
	s := c.sampler.Look(r.Context())
	body := &topicPage{Name: name, Topic: s.Topic(name), Chosen: -1}
	code := http.StatusOK
	if !isPart(r) {
		var parts []int
		if body.Topic != nil {
			parts = body.Topic.Partitions
		}
		body.Chosen = chosenPartition(r.URL.Query(), parts, body.Topic)
		code, body.Events = c.listEvents(r, listing{page: "topic", param: "name", topic: name, number: body.Chosen, parts: parts})
	}
	p := &page{Title: "Topic " + name, Live: true, Figures: s, Body: body}
	if t := body.Topic; t != nil && isUnread(t) && len(t.Partitions) == 0 {
		p.Permit = c.permissions(w, r, Action{Topic: name}, DeleteTopic)
	}
	c.render(w, r, code, "topic", p)
}

// chosenPartition returns the partition of a request: the one in its query or, without, the first one of a
// topic that has no events of its own.
func chosenPartition(q url.Values, parts []int, t *groupstats.Topic) int {
	if n, err := strconv.Atoi(q.Get("partition")); err == nil && n >= -1 && n < partition.Most {
		return n
	}
	if len(parts) > 0 && !t.Exists {
		return parts[0]
	}
	return -1
}

// A listing says which topic's events a page lists.
type listing struct {
	page, param string // of the URL
	topic       string
	number      int   // the partition; -1: none
	parts       []int // all partitions, through which a search continues
}

func (l *listing) source() string {
	if l.number < 0 {
		return l.topic
	}
	return partition.Topic(l.topic, l.number)
}

// url returns the URL of the page with other parameters.
func (l *listing) url(number int, more url.Values) string {
	v := url.Values{}
	for name, values := range more {
		v[name] = values
	}
	v.Set(l.param, l.topic)
	if number >= 0 {
		v.Set("partition", strconv.Itoa(number))
	}
	return l.page + "?" + v.Encode() + "#events"
}

// listEvents reads the events that a request asks for. It returns the status of the answer.
func (c *console) listEvents(r *http.Request, l listing) (int, *eventList) {
	q := r.URL.Query()
	e := &eventList{Source: l.source(), Search: searchOf(q), Oldest: q.Get("order") == "oldest", Since: q.Get("since"), Hidden: url.Values{l.param: {l.topic}}}
	if l.number >= 0 {
		e.Hidden.Set("partition", strconv.Itoa(l.number))
	}
	from, ok := parseStart(q.Get("from"))
	if e.Since != "" && ok && from == backend.StartEarliest {
		if from, ok = parseSince(e.Since); ok {
			e.Oldest = true
		}
	}
	if !ok {
		e.Failure = &failure{Text: fmt.Sprintf("%q is not a time", shorten(q.Get("from")+e.Since)), Hint: "Enter a time such as 2026-01-31T08:00:00Z, or 2h ago."}
		return http.StatusBadRequest, e
	}
	e.Found = !e.Search.empty()
	key := strings.Join([]string{e.Source, string(from), q.Get("before"), strconv.FormatBool(e.Oldest), e.Search.values().Encode()}, "\x00")
	read, err := readShared(r.Context(), c.reader, key, func(ctx context.Context) (eventList, error) {
		some := *e
		err := c.readEvents(ctx, &some, &l, from, q.Get("before"))
		return some, err
	})
	if err != nil {
		code, f := failureOf(err)
		e.Failure = &f
		return code, e
	}
	read.Since, read.Hidden = e.Since, e.Hidden
	return http.StatusOK, &read
}

// parseSince returns the Start of a time that people write.
func parseSince(text string) (backend.Start, bool) {
	now := time.Now()
	t, ok := operator.Timestamp(text, now)
	if d, err := time.ParseDuration(text); !ok && err == nil {
		t, ok = now.Add(-d), true
	}
	return backend.StartAt(t), ok
}

// readEvents reads events, and sets the rows and the links of e.
func (c *console) readEvents(ctx context.Context, e *eventList, l *listing, from backend.Start, before string) error {
	tr := c.openTopic(ctx, e.Source)
	switch {
	case e.Found:
		f, err := tr.search(ctx, &e.Search, from)
		if err != nil {
			return err
		}
		e.Rows, e.Read = f.rows, f.read
		v := e.Search.values()
		if !f.done {
			v.Set("from", string(f.next))
			e.Next = l.url(l.number, v)
		} else if i := slices.Index(l.parts, l.number); i+1 < len(l.parts) {
			e.Next = l.url(l.parts[i+1], v)
		}
	case e.Oldest:
		s, err := tr.readForward(ctx, from, "", pageRows, maxReadBytes)
		if err = ignoreSpent(err, s); err != nil {
			return err
		}
		e.Rows = s.rows
		if s.full {
			e.Newer = l.url(l.number, url.Values{"order": {"oldest"}, "from": {string(backend.StartAfter(s.rows[len(s.rows)-1].Position))}})
		}
	default:
		rows, more, err := tr.newest(ctx, before, pageRows)
		if err != nil {
			return err
		}
		if more && len(rows) > 0 {
			e.Older = l.url(l.number, url.Values{"before": {rows[0].Position}})
		}
		slices.Reverse(rows)
		e.Rows = rows
	}
	return nil
}

// PartURL returns the URL of a partition's events.
func (p *topicPage) PartURL(number int) string {
	l := listing{page: "topic", param: "name", topic: p.Name}
	return l.url(number, nil)
}

// OrderURL returns the URL of the first events in an order: newest or oldest.
func (p *topicPage) OrderURL(order string) string {
	l := listing{page: "topic", param: "name", topic: p.Name}
	return l.url(p.Chosen, url.Values{"order": {order}})
}
