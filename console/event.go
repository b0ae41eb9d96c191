package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/presence"
)

// An eventPage is the page of one event, or of one dead letter.
type eventPage struct {
	Topic   string
	Event   eventbus.Event       // without its payload
	Letter  *eventbus.DeadLetter // nil: no dead letter
	Stack   []string             // of the letter
	Headers eventbus.Headers     // without the headers of the letter
	More    int                  // headers that are not shown
	Payload shown
	Forms   []formLink
	URL     string
	From    backend.Start // a place before a dead letter
	At      string        // its position
	Seen    string        // of a dead letter, see seen
	Trace   trace         // zero: the event has none
	Buries  []groupLink   // groups for which the visitor may bury the event
}

// A groupLink leads to the page that asks before an event of a group is buried.
type groupLink struct {
	Topic, Group string
	URL          string
	Failing      presence.Event // without its error if the console hides parts of events; zero: not known
}

// A formLink leads to the same page with another form of the payload.
type formLink struct {
	Form    form
	URL     string
	Current bool
}

const (
	mostHeaders     = 200
	mostHeaderBytes = 64 << 10 // of all headers that are shown
	mostHeader      = 16 << 10 // of one of the headers
)

func (c *console) event(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	q := r.URL.Query()
	from, ok := startOf(q.Get("from"))
	if !ok || q.Get("at") == "" {
		c.notFound(w, r)
		return
	}
	f := form(q.Get("as"))
	key := strings.Join([]string{topic, string(from), q.Get("at"), string(f)}, "\x01")
	body, err := reading(r.Context(), c.readings, key, func(ctx context.Context) (*eventPage, error) {
		m, err := c.browse(ctx, topic).at(ctx, from, q.Get("at"))
		if err != nil {
			return nil, err
		}
		e := c.redact.EventOf(m)
		return newEventPage(topic, &e, f), nil
	})
	if err != nil {
		c.fail(w, r, "Event of "+topic, err)
		return
	}
	here := url.Values{"topic": {topic}, "from": {string(from)}, "at": {q.Get("at")}}
	shown := *body // it is shared
	for _, f := range []form{asJSON, asText, asCBOR, asHex} {
		here.Set("as", string(f))
		shown.Forms = append(shown.Forms, formLink{f, "event?" + here.Encode(), f == body.Payload.Form})
	}
	shown.Trace.URL = c.traceURL(shown.Trace.ID)
	shown.Buries = buriesOf(c, r, topic, q.Get("at"))
	p := &page{Title: "Event of " + topic, Body: &shown}
	if shown.Letter != nil {
		shown.From, shown.At = from, q.Get("at")
		p.Permit = c.permit(w, r, Action{Topic: topic, Place: q.Get("at")}, Redrive, Edit, Discard)
	}
	c.render(w, r, http.StatusOK, "event", p)
}

const mostBuries = 50 // groups

// buriesOf returns the groups of a topic, which may be a partition, for which the visitor may bury the
// event at a position.
func buriesOf(c *console, r *http.Request, topic, position string) (links []groupLink) {
	of, part := topic, ""
	if whole, n, ok := partition.Cut(topic); ok {
		of, part = whole, strconv.Itoa(n)
	}
	s := c.sampler.Look(r.Context())
	t := s.Topic(of)
	if t == nil {
		return nil
	}
	var all []presence.Process
	if s.Announced {
		all, _ = c.announced(r.Context()) // without notes it is not known whether the event fails
	}
	for _, g := range t.Groups[:min(len(t.Groups), mostBuries)] {
		if offers(c, r, Action{Topic: of, Group: g.Name, Place: position, Partition: part}, Bury) {
			l := groupLink{Topic: of, Group: g.Name, URL: buryURL(topic, g.Name, position)}
			if l.Failing, _ = presence.EventAt(all, topic, g.Name, position); c.redact != nil {
				l.Failing.Error = ""
			}
			links = append(links, l)
		}
	}
	return links
}

// at returns the message at a position. It is soon after from, or anywhere if from is the beginning.
func (b *browser) at(ctx context.Context, from backend.Start, position string) (*backend.Message, error) {
	read := b.reader(from)
	for range 3 { // the event is the first one, if nobody has changed the link
		ms, err := read.Next(ctx, 1)
		if err != nil {
			return nil, err
		}
		for i := range ms {
			switch {
			case ms[i].Position == position:
				return &ms[i], nil
			case ms[i].Position > position:
				return nil, fmt.Errorf("event at %s: %w", position, backend.ErrGone)
			}
		}
		if len(ms) == 0 {
			break
		}
	}
	if from == backend.StartEarliest {
		return read.At(ctx, position)
	}
	return nil, fmt.Errorf("event at %s: %w", position, backend.ErrGone)
}

func newEventPage(topic string, e *eventbus.Event, f form) *eventPage {
	p := &eventPage{Topic: topic, Event: *e, Payload: show(e.Payload, f, e.ContentType), Trace: trace{ID: traceID(e.Headers)}}
	p.Event.Payload, p.Event.Headers = nil, nil
	if why, ok := eventbus.DeadLetterOf(e); ok {
		p.Letter, p.Seen = &why, seen(e)
		if why.Stack != "" {
			p.Stack = strings.Split(cutText(why.Stack), " | ")
		}
	}
	size := 0
	for _, h := range e.Headers {
		h.Value = cutText(h.Value)
		switch {
		case p.Letter != nil && strings.HasPrefix(h.Name, letter.ReservedPrefix+"dead-"):
		case len(p.Headers) >= mostHeaders, size > mostHeaderBytes:
			p.More++
		default:
			size += len(h.Name) + len(h.Value)
			p.Headers = append(p.Headers, h)
		}
	}
	return p
}

// cutText returns the beginning of a long text.
func cutText(s string) string {
	if len(s) <= mostHeader {
		return s
	}
	return strings.ToValidUTF8(s[:mostHeader], "") + "…"
}

// Fields returns the fields of a form that names the dead letter.
func (p *eventPage) Fields() url.Values {
	return url.Values{"topic": {p.Topic}, "from": {string(p.From)}, "at": {p.At}, "seen": {p.Seen}}
}

// Expires returns when the event expires; zero: never.
func (p *eventPage) Expires() time.Time {
	if p.Event.TTL <= 0 {
		return time.Time{}
	}
	return p.Event.Time.Add(p.Event.TTL)
}
