package console_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A countingBackend counts the calls of a backend in memory, and fails all of them while err is set.
type countingBackend struct {
	*inmemory.Backend
	calls, reads, events, bytes atomic.Int64

	mu  sync.Mutex
	err error
}

func newCountingBackend(t testing.TB) *countingBackend {
	b := inmemory.New(inmemory.Options{MaxBytes: 4 << 30})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &countingBackend{Backend: b}
}

func (m *countingBackend) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *countingBackend) call() error {
	m.calls.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *countingBackend) Ping(context.Context) error { return m.call() }

func (m *countingBackend) Now(ctx context.Context, topic string) (time.Time, error) {
	if err := m.call(); err != nil {
		return time.Time{}, err
	}
	return m.Backend.Now(ctx, topic)
}

func (m *countingBackend) Topics(ctx context.Context) ([]string, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Backend.Topics(ctx)
}

func (m *countingBackend) Groups(ctx context.Context, topic string) ([]string, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Backend.Groups(ctx, topic)
}

func (m *countingBackend) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if err := m.call(); err != nil {
		return backend.Stats{}, err
	}
	return m.Backend.Stats(ctx, topic, group)
}

func (m *countingBackend) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	if err := m.call(); err != nil {
		return backend.Pause{}, err
	}
	return m.Backend.Paused(ctx, topic, group)
}

func (m *countingBackend) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	ms, err := m.Backend.Read(ctx, topic, from, limit)
	m.reads.Add(1)
	m.events.Add(int64(len(ms)))
	for i := range ms {
		m.bytes.Add(int64(ms[i].Size()))
	}
	return ms, err
}

// store publishes an event.
func store(t testing.TB, b backend.Backend, topic string, e eventbus.Event) {
	t.Helper()
	m, err := eventbus.MessageOf(topic, &e)
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
}

// numbered publishes n events e-0, e-1 and so on.
func numbered(t testing.TB, b backend.Backend, topic string, n int) {
	t.Helper()
	ms := make([]*backend.Message, n)
	for i := range n {
		m, err := eventbus.MessageOf("any", &eventbus.Event{
			ID: fmt.Sprint("e-", i), Type: fmt.Sprint("type", i%3), Key: fmt.Sprint("key", i%7), ContentType: "application/json",
			Headers: eventbus.Headers{{Name: "shard", Value: fmt.Sprint(i % 5)}}, Payload: fmt.Appendf(nil, `{"n":%d}`, i),
		})
		require.NoError(t, err)
		m.Topic = topic // which may be a name of the bus
		ms[i] = m
	}
	require.NoError(t, b.Publish(t.Context(), ms))
}

// bury publishes a dead letter of the event with this ID.
func bury(t testing.TB, b backend.Backend, topic, id string, why map[string]string) {
	t.Helper()
	m := &backend.Message{Topic: topic, ID: "letter-of-" + id, Payload: []byte(`{"id":"` + id + `"}`)}
	for name, value := range why {
		m.Headers.Set(name, value)
	}
	m.Headers.Set(letter.ID, id)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
}

func attach(t testing.TB, b backend.Backend, topic, group string) backend.Source {
	t.Helper()
	s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// A visitor asks a handler for pages.
type visitor struct {
	t testing.TB
	h http.Handler
}

func visit(t testing.TB, b backend.Backend, o console.Options) visitor {
	return visitor{t, console.Handler(b, o)}
}

func (v visitor) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	v.h.ServeHTTP(w, r)
	return w
}

// answer returns the status and the body of a page.
func (v visitor) answer(url string) (int, string) {
	v.t.Helper()
	url, _, _ = strings.Cut(url, "#")
	w := v.ask(httptest.NewRequestWithContext(v.t.Context(), http.MethodGet, "/"+url, http.NoBody))
	return w.Code, w.Body.String()
}

// page returns a page that must exist.
func (v visitor) page(url string) page {
	v.t.Helper()
	code, body := v.answer(url)
	require.Equal(v.t, http.StatusOK, code, "%s: %s", url, body)
	return parse(v.t, body)
}

// A page is the parsed HTML of a page. All pages are well-formed XML.
type page struct {
	t        testing.TB
	elements []element
	text     string // of all elements, with one space between words
}

// An element has a name, its attributes, and the text in it.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

func parse(t testing.TB, body string) page {
	t.Helper()
	p := page{t: t}
	d := xml.NewDecoder(strings.NewReader(body))
	d.Strict = true
	var open []int
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "a page is well-formed:\n%s", body)
		switch x := token.(type) {
		case xml.StartElement:
			e := element{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			open = append(open, len(p.elements))
			p.elements = append(p.elements, e)
		case xml.EndElement:
			for _, i := range open {
				p.elements[i].text += " "
			}
			open = open[:len(open)-1]
		case xml.CharData:
			for _, i := range open {
				p.elements[i].text += string(x)
			}
		}
	}
	p.text = strings.Join(strings.Fields(p.elements[0].text), " ")
	return p
}

// all returns the elements of a name.
func (p page) all(name string) (found []element) {
	for _, e := range p.elements {
		if e.name == name {
			found = append(found, e)
		}
	}
	return found
}

// link returns the URL of the link with this text, or "" if there is none.
func (p page) link(text string) string {
	for _, a := range p.all("a") {
		if strings.TrimSpace(a.text) == text {
			return a.attrs["href"]
		}
	}
	return ""
}

// cells returns the cells of each row in the table with a caption that begins so.
func (p page) cells(caption string) (rows []map[string]string) {
	inside := false
	for _, e := range p.elements {
		switch {
		case e.name == "caption":
			inside = strings.HasPrefix(e.text, caption)
		case inside && e.name == "tr":
			rows = append(rows, map[string]string{})
		case inside && e.attrs["data-label"] != "":
			rows[len(rows)-1][e.attrs["data-label"]] = strings.Join(strings.Fields(e.text), " ")
		}
	}
	if len(rows) > 0 {
		rows = rows[1:] // of the heading
	}
	return rows
}

// A operatorVisitor is a visitor that fills in forms. It keeps a cookie, as a browser does.
type operatorVisitor struct {
	visitor
	cookie string
}

// everything allows each action.
func everything(*http.Request, console.Action) error { return nil }

// change returns a visitor that may do everything, unless o says otherwise.
func change(t testing.TB, b backend.Backend, o console.Options) *operatorVisitor {
	if o.Allow == nil {
		o.Allow = everything
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &operatorVisitor{visitor: visit(t, b, o)}
}

// send sends a request with the cookie, and keeps the cookie of the answer.
func (h *operatorVisitor) send(r *http.Request) *httptest.ResponseRecorder {
	h.t.Helper()
	if h.cookie != "" {
		r.Header.Set("Cookie", h.cookie)
	}
	w := h.ask(r)
	for _, c := range w.Result().Cookies() {
		h.cookie = c.Name + "=" + c.Value
	}
	return w
}

// open returns a page that must exist.
func (h *operatorVisitor) open(url string) page {
	h.t.Helper()
	url, _, _ = strings.Cut(url, "#")
	w := h.send(httptest.NewRequestWithContext(h.t.Context(), http.MethodGet, "/"+url, http.NoBody))
	require.Equal(h.t, http.StatusOK, w.Code, "%s: %s", url, w.Body)
	return parse(h.t, w.Body.String())
}

// form returns the form with this id, and its fields.
func (p page) form(id string) (form element, fields url.Values) {
	p.t.Helper()
	fields = url.Values{}
	inside := false
	for _, e := range p.elements {
		switch {
		case e.name == "form":
			if inside = e.attrs["id"] == id; inside {
				form = e
			}
		case inside && e.name == "input":
			fields.Set(e.attrs["name"], e.attrs["value"])
		case inside && e.name == "textarea":
			fields.Set(e.attrs["name"], strings.TrimSuffix(strings.TrimPrefix(e.text, "\n"), " "))
		}
	}
	require.NotEmpty(p.t, form.name, "the page has a form %q:\n%s", id, p.text)
	return form, fields
}

// has reports whether the page has a form.
func (p page) has(id string) bool {
	for _, e := range p.all("form") {
		if e.attrs["id"] == id {
			return true
		}
	}
	return false
}

// byID returns the text of the element with this id, with one space between words.
func (p page) byID(id string) string {
	for _, e := range p.elements {
		if e.attrs["id"] == id {
			return strings.Join(strings.Fields(e.text), " ")
		}
	}
	return ""
}

// post returns the request that posts a form.
func (h *operatorVisitor) post(fields url.Values) *http.Request {
	r := httptest.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://example.com/act", strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://example.com")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// submit submits the form of a page, with some other fields, and returns the next page.
func (h *operatorVisitor) submit(p page, id string, more ...string) page {
	h.t.Helper()
	form, fields := p.form(id)
	for i := 0; i < len(more); i += 2 {
		fields.Set(more[i], more[i+1])
	}
	if form.attrs["method"] == "get" {
		return h.open(form.attrs["action"] + "?" + fields.Encode())
	}
	require.Equal(h.t, "act", form.attrs["action"])
	w := h.send(h.post(fields))
	require.Equal(h.t, http.StatusSeeOther, w.Code, w.Body)
	return h.open(w.Header().Get("Location"))
}

// letter returns the page of the n-th dead letter.
func (h *operatorVisitor) letter(topic string, n int) page {
	h.t.Helper()
	rows := h.open("topic?order=oldest&name=" + topic)
	at := rows.cells("Events of")[n]["Position"]
	return h.open(rows.link(at))
}

// A logBuffer keeps the lines of a log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *logBuffer) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// responseBody returns the body of a response.
func responseBody(t testing.TB, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}
