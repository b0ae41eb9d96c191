package console_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

// A hand is a visitor that fills in forms. It keeps a cookie, as a browser does.
type hand struct {
	visitor
	cookie string
}

// everything allows each action.
func everything(*http.Request, console.Action) error { return nil }

// change returns a visitor that may do everything, unless o says otherwise.
func change(t testing.TB, b backend.Backend, o console.Options) *hand {
	if o.Allow == nil {
		o.Allow = everything
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &hand{visitor: visit(t, b, o)}
}

// send sends a request with the cookie, and keeps the cookie of the answer.
func (h *hand) send(r *http.Request) *httptest.ResponseRecorder {
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
func (h *hand) open(url string) page {
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
func (h *hand) post(fields url.Values) *http.Request {
	r := httptest.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://example.com/act", strings.NewReader(fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://example.com")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// submit submits the form of a page, with some other fields, and returns the next page.
func (h *hand) submit(p page, id string, more ...string) page {
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
func (h *hand) letter(topic string, n int) page {
	h.t.Helper()
	rows := h.open("topic?order=oldest&name=" + topic)
	at := rows.cells("Events of")[n]["Position"]
	return h.open(rows.link(at))
}

// A journal keeps the lines of a log.
type recordTail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *recordTail) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *recordTail) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *recordTail) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// read returns the body of an answer.
func readAsset(t testing.TB, answer *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(body)
}
