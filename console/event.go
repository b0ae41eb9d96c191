package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
)

// An eventPage is the page of one event, or of one dead letter.
type eventPage struct {
	Topic       string
	Event       eventbus.Event       // without its payload
	Letter      *eventbus.DeadLetter // nil: no dead letter
	Stack       []string             // of the letter
	Headers     eventbus.Headers     // without the headers of the letter
	More        int                  // headers that are not shown
	Payload     shownPayload
	Formats     []formatLink
	URL         string
	From        backend.Start // a start shortly before a dead letter
	At          string        // its position
	Fingerprint string        // of a dead letter; see seen
	Trace       trace         // zero: the event has none
	Buries      []groupLink   // groups for which the visitor may bury the event
}

// A formatLink leads to the same page with the payload in another format.
type formatLink struct {
	Format  payloadFormat
	URL     string
	Current bool
}

const (
	maxHeaders     = 200
	maxHeaderBytes = 64 << 10 // of all headers that are shown
	maxHeader      = 16 << 10 // of one of the headers
)

func (c *console) event(w http.ResponseWriter, r *http.Request) {
	topic, ok := c.topicParam(w, r, "topic")
	if !ok {
		return
	}
	q := r.URL.Query()
	from, ok := parseStart(q.Get("from"))
	if !ok || q.Get("at") == "" {
		c.notFound(w, r)
		return
	}
	f := payloadFormat(q.Get("as"))
	key := strings.Join([]string{topic, string(from), q.Get("at"), string(f)}, "\x01")
	body, err := readShared(r.Context(), c.reader, key, func(ctx context.Context) (*eventPage, error) {
		m, err := c.openTopic(ctx, topic).eventAt(ctx, from, q.Get("at"))
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
	for _, f := range []payloadFormat{formatJSON, formatText, formatCBOR, formatHex} {
		here.Set("as", string(f))
		shown.Formats = append(shown.Formats, formatLink{f, "event?" + here.Encode(), f == body.Payload.Format})
	}
	shown.Trace.URL = c.traceURL(shown.Trace.ID)
	shown.Buries = buriesOf(c, r, topic, q.Get("at"))
	p := &page{Title: "Event of " + topic, Body: &shown}
	if shown.Letter != nil {
		shown.From, shown.At = from, q.Get("at")
		p.Permit = c.permissions(w, r, Action{Topic: topic, Place: q.Get("at")}, Redrive, Edit, Discard)
	}
	c.render(w, r, http.StatusOK, "event", p)
}

func newEventPage(topic string, e *eventbus.Event, f payloadFormat) *eventPage {
	p := &eventPage{Topic: topic, Event: *e, Payload: showPayload(e.Payload, f, e.ContentType), Trace: trace{ID: traceID(e.Headers)}}
	p.Event.Payload, p.Event.Headers = nil, nil
	if why, ok := eventbus.DeadLetterOf(e); ok {
		p.Letter, p.Fingerprint = &why, fingerprint(e)
		if why.Stack != "" {
			p.Stack = strings.Split(cutText(why.Stack), " | ")
		}
	}
	size := 0
	for _, h := range e.Headers {
		h.Value = cutText(h.Value)
		switch {
		case p.Letter != nil && strings.HasPrefix(h.Name, letter.ReservedPrefix+"dead-"):
		case len(p.Headers) >= maxHeaders, size > maxHeaderBytes:
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
	if len(s) <= maxHeader {
		return s
	}
	return strings.ToValidUTF8(s[:maxHeader], "") + "…"
}

// Fields returns the fields of a form that names the dead letter.
func (p *eventPage) Fields() url.Values {
	return url.Values{"topic": {p.Topic}, "from": {string(p.From)}, "at": {p.At}, "seen": {p.Fingerprint}}
}

// Expires returns when the event expires, or the zero time if it never does.
func (p *eventPage) Expires() time.Time {
	if p.Event.TTL <= 0 {
		return time.Time{}
	}
	return p.Event.Time.Add(p.Event.TTL)
}
