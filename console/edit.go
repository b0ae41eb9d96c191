package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A draft is an event as the fields of a form show it. A field that the visitor does not change keeps
// the bytes of the event, even if the form cannot show them or shows them redacted.
type draft struct {
	Type, Key string
	Headers   eventbus.Headers
	Payload   string
	Text      bool   // the payload can be edited
	Why       string // it cannot, because of this
	Fixed     bool   // the key cannot be edited, because the event stays in its partition
}

const (
	moreHeaders = 3   // empty rows for new headers
	maxEdited   = 100 // headers
	typeHeader  = "ce-type"
)

// draftOf returns the draft of a dead letter, as a reader of its topic gets the letter.
func draftOf(e *eventbus.Event, of string) *draft {
	d := &draft{Type: fieldValue(e.Type), Key: fieldValue(e.Key)}
	_, _, d.Fixed = partition.Cut(of)
	for _, h := range sortHeaders(letter.Original(&backend.Message{Headers: e.Headers})) {
		if len(d.Headers) < maxEdited {
			d.Headers = append(d.Headers, eventbus.Header{Name: fieldValue(h.Name), Value: fieldValue(h.Value)})
		}
	}
	switch {
	case len(e.Payload) > maxText:
		d.Why = "It is larger than " + formatSize(maxText) + "."
	case !isText(e.Payload) || strings.ContainsFunc(string(e.Payload), func(r rune) bool { return r&0xfffe == 0xfffe }):
		d.Why = "It is not text."
	default:
		d.Text, d.Payload = true, normalizeNewlines(string(e.Payload))
	}
	return d
}

// normalizeNewlines returns text with the line ends that a browser gives to the text of a form, without their
// carriage returns.
func normalizeNewlines(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// An editPage is the page with the form of one dead letter.
type editPage struct {
	Topic string
	URL   string // of the letter
	Form  *changeForm
	Draft *draft
}

// Rows returns the headers with a number each, and some empty rows.
func (p *editPage) Rows() (rows []headerRow) {
	for i, h := range p.Draft.Headers {
		rows = append(rows, headerRow{i, h.Name, h.Value})
	}
	for range moreHeaders {
		rows = append(rows, headerRow{N: len(rows)})
	}
	return rows
}

type headerRow struct {
	N           int
	Name, Value string
}

// editForm shows the form that edits one dead letter.
func (c *console) editForm(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	form, err := parseForm(url.Values{"verb": {string(Edit)}, "topic": q["topic"], "from": q["from"], "at": q["at"]})
	if err == nil {
		form.DryRun = true
		err = c.allow(r, form.Action)
	}
	if err != nil {
		c.fail(w, r, "Edit a dead letter", err)
		return
	}
	body, err := readShared(r.Context(), c.reader, "edit\x01"+form.Topic+"\x01"+string(form.from)+"\x01"+form.Place, func(ctx context.Context) (*editPage, error) {
		m, err := c.openTopic(ctx, form.Topic).eventAt(ctx, form.from, form.Place)
		if err != nil {
			return nil, err
		}
		l, ok := deadLetterOf(c.redact, m)
		if !ok {
			return nil, formError("the event is not a dead letter")
		}
		form.fingerprint = fingerprint(&l.event)
		return &editPage{Topic: form.Topic, Form: form, Draft: draftOf(&l.event, l.stored.Topic)}, nil
	})
	if err != nil {
		c.fail(w, r, "Edit a dead letter", err)
		return
	}
	shown := *body // it is shared
	shown.URL = form.pageURL()
	c.render(w, r, http.StatusOK, "edit", &page{Title: "Edit a dead letter of " + form.Topic, Permit: c.permissions(w, r, form.Action, Edit), Body: &shown})
}

var errNotEditable = errors.New("the payload of this event cannot be edited")

// editFunc returns the function that applies the edits of a form to the event of a dead letter.
func (x *executor) editFunc(form *changeForm) func(*backend.Message, *deadletter.Letter) error {
	return func(m *backend.Message, l *deadletter.Letter) error {
		stored := l.Stored()
		event := x.redact.EventOf(&stored)
		shown := draftOf(&event, l.Topic)
		before := m.Payload
		if err := shown.apply(m, form.edited); err != nil {
			return err
		}
		e := eventbus.EventOf(m)
		if !bytes.Equal(m.Payload, before) && hasFormat(e.ContentType, "json") && !json.Valid(m.Payload) {
			return fmt.Errorf("the edited payload is not valid JSON, although its content type is %s", e.ContentType)
		}
		_, err := eventbus.MessageOf("any", &e) // it checks the fields
		return err
	}
}

// apply changes the fields of m that differ between the draft and the form v.
func (d *draft) apply(m *backend.Message, v url.Values) error {
	if key := v.Get("key"); v.Has("key") && key != d.Key {
		if d.Fixed {
			return errors.New("the key of an event in a partition cannot be edited")
		}
		m.Key = key
	}
	if kind := v.Get("type"); v.Has("type") && kind != d.Type {
		setHeader(m, typeHeader, kind)
	}
	if err := d.applyHeaders(m, v); err != nil {
		return err
	}
	if text := normalizeNewlines(v.Get("payload")); v.Has("payload") && text != d.Payload {
		if !d.Text {
			return errNotEditable
		}
		m.Payload = []byte(text)
	}
	return nil
}

// A headerEdit is one header as the form has shown it, and as it came back.
type headerEdit struct{ was, now eventbus.Header }

// headerEdits returns the headers that the visitor has changed, added or removed.
func (d *draft) headerEdits(v url.Values) (all []headerEdit) {
	for i := range len(d.Headers) + moreHeaders {
		n := strconv.Itoa(i)
		if !v.Has("name" + n) {
			continue
		}
		e := headerEdit{now: eventbus.Header{Name: strings.TrimSpace(v.Get("name" + n)), Value: v.Get("value" + n)}}
		if i < len(d.Headers) {
			e.was = d.Headers[i]
		}
		if e.now != e.was {
			all = append(all, e)
		}
	}
	return all
}

// applyHeaders changes the headers of m. All removals come first, so that two headers can swap their
// names. It refuses an edit that would remove a header which the visitor did not mean.
func (d *draft) applyHeaders(m *backend.Message, v url.Values) error {
	edits := d.headerEdits(v)
	for _, e := range edits {
		if strings.HasPrefix(strings.ToLower(e.now.Name), letter.ReservedPrefix) || e.now.Name == typeHeader {
			return fmt.Errorf("the header name %q is reserved", e.now.Name)
		}
		if n := countHeaders(m.Headers, e.was.Name); e.was.Name != "" && n != 1 {
			return fmt.Errorf("the event has %d headers named %q, and only a single one can be edited", n, e.was.Name)
		}
	}
	for _, e := range edits {
		if e.was.Name != "" && e.now.Name != e.was.Name {
			m.Headers.Del(e.was.Name)
		}
	}
	for _, e := range edits {
		if e.now.Name == "" {
			continue
		}
		if e.now.Name != e.was.Name && countHeaders(m.Headers, e.now.Name) > 0 {
			return fmt.Errorf("there would be two headers named %q", e.now.Name)
		}
		m.Headers.Set(e.now.Name, e.now.Value)
	}
	return nil
}

// countHeaders returns how many headers have a name.
func countHeaders(all eventbus.Headers, name string) (n int) {
	for _, h := range all {
		if h.Name == name {
			n++
		}
	}
	return n
}

func setHeader(m *backend.Message, name, value string) {
	if value == "" {
		m.Headers.Del(name)
		return
	}
	m.Headers.Set(name, value)
}
