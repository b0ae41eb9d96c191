package console_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// A meter counts the calls of a backend in memory, and fails all of them while err is set.
type meter struct {
	*inmemory.Backend
	calls, reads, events, bytes atomic.Int64

	mu  sync.Mutex
	err error
}

func newMeter(t testing.TB) *meter {
	b := inmemory.New(inmemory.Options{MaxBytes: 4 << 30})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &meter{Backend: b}
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *meter) call() error {
	m.calls.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *meter) Ping(context.Context) error { return m.call() }

func (m *meter) Now(ctx context.Context, topic string) (time.Time, error) {
	if err := m.call(); err != nil {
		return time.Time{}, err
	}
	return m.Backend.Now(ctx, topic)
}

func (m *meter) Topics(ctx context.Context) ([]string, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Backend.Topics(ctx)
}

func (m *meter) Groups(ctx context.Context, topic string) ([]string, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	return m.Backend.Groups(ctx, topic)
}

func (m *meter) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if err := m.call(); err != nil {
		return backend.Stats{}, err
	}
	return m.Backend.Stats(ctx, topic, group)
}

func (m *meter) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	if err := m.call(); err != nil {
		return backend.Pause{}, err
	}
	return m.Backend.Paused(ctx, topic, group)
}

func (m *meter) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
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

// link returns the URL of the link with this text; empty: there is none.
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
