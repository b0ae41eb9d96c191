package console_test

import (
	"errors"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/inmemory"
)

// Without Allow no page has a form that changes something, and no address takes one.
func TestOnlyReadsByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		writer := change(t, m, console.Options{})
		_, fields := writer.letter("orders.dlq", 0).form("redrive")
		h := &operatorVisitor{visitor: visit(t, m, console.Options{}), cookie: writer.cookie}
		for _, p := range []page{h.letter("orders.dlq", 0), h.open("letters?topic=orders.dlq"), h.open("group?topic=orders&name=billing"), h.open("")} {
			for _, f := range p.all("form") {
				require.Equal(t, "get", f.attrs["method"])
				require.NotEqual(t, "confirm", f.attrs["action"])
			}
			require.Empty(t, p.link("Changes"))
		}
		w := h.send(h.post(fields))
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		for _, url := range []string{"confirm?verb=discard&topic=orders.dlq", "edit?topic=orders.dlq&at=1", "jobs", "job?id=1", "act"} {
			code, _ := h.answer(url)
			require.Equal(t, http.StatusNotFound, code, url)
		}
		require.Len(t, ids(t, m, "orders.dlq"), 4)
	})
}

// A visitor whom Allow refuses sees no button, and neither a page that asks nor a form does anything.
func TestAllowRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		var log logBuffer
		var asked []console.Action
		h := change(t, m, console.Options{
			Logger: log.logger(),
			Who:    func(r *http.Request) string { return r.Header.Get("User") },
			Allow: func(_ *http.Request, a console.Action) error {
				asked = append(asked, a)
				if a.Verb == console.Redrive && a.Place != "" {
					return nil
				}
				return errors.New("ann is not in the group secret-operators")
			},
		})
		p := h.letter("orders.dlq", 0)
		require.True(t, p.has("redrive"))
		require.False(t, p.has("edit"))
		require.Contains(t, p.text, "You are not allowed to: edit, discard.")
		require.Contains(t, h.open("group?topic=orders&name=billing").text, "You are not allowed to: pause, resume, reset, delete-group.")
		_, fields := p.form("redrive")
		require.Empty(t, log.String(), "a page that shows no button is no refusal")
		asked = nil
		for _, verb := range []console.Verb{console.Edit, console.Discard, console.Pause, console.Resume, console.Reset, console.DeleteGroup, console.Redrive} {
			fields.Set("verb", string(verb))
			fields.Set("name", "billing")
			fields.Set("to", "latest")
			if verb == console.Redrive {
				fields.Del("at")
			}
			r := h.post(fields)
			r.Header.Set("User", "ann\nroot")
			w := h.send(r)
			require.Equal(t, http.StatusForbidden, w.Code, verb)
			require.Contains(t, w.Body.String(), "<p>you are not allowed to do that</p>")
			require.NotContains(t, w.Body.String(), "secret-operators")
			require.Contains(t, w.Body.String(), `id="back"`)
			require.Equal(t, verb, asked[len(asked)-1].Verb)
			require.False(t, asked[len(asked)-1].DryRun)
			if verb != console.Edit && verb != console.Pause && verb != console.Resume {
				code, body := h.answer("confirm?" + fields.Encode())
				require.Equal(t, http.StatusForbidden, code, verb)
				require.NotContains(t, body, "secret-operators")
				require.True(t, asked[len(asked)-1].DryRun)
			}
		}
		code, _ := h.answer("edit?" + fields.Encode() + "&at=1")
		require.Equal(t, http.StatusForbidden, code)
		require.Len(t, ids(t, m, "orders.dlq"), 4)
		require.Equal(t, 7, strings.Count(log.String(), `msg="console: refused" who="ann\nroot"`), log.String())
		require.Contains(t, log.String(), "secret-operators")
	})
}

// Allow gets the filter of the letters, so that it can decide by the group.
func TestAllowGetsTheFilter(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		var got console.Action
		h := change(t, m, console.Options{Allow: func(_ *http.Request, a console.Action) error { got = a; return nil }})
		h.open("confirm?verb=discard&topic=orders.dlq&id=i&key=k&type=t&header=h&value=v&group=g")
		require.Equal(t, console.Action{Verb: console.Discard, Topic: "orders.dlq", DryRun: true, Filter: console.Filter{ID: "i", Key: "k", Type: "t", Header: "h", Value: "v", Group: "g"}}, got)
		h.open("confirm?verb=discard&topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=")
		require.Equal(t, console.Filter{Class: &console.Class{Topic: "orders", Group: "billing", Reason: "exhausted", ErrorClass: "timeout"}}, got.Filter)
	})
}

// A form counts only if a page of this handler has sent it, to this browser, not too long ago.
func TestForeignForms(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		_, good := h.letter("orders.dlq", 0).form("redrive")
		other := &operatorVisitor{visitor: h.visitor}
		_, foreign := other.letter("orders.dlq", 0).form("redrive")
		require.NotEqual(t, h.cookie, other.cookie)
		restarted := change(t, m, console.Options{})
		restarted.cookie = h.cookie
		_, older := restarted.letter("orders.dlq", 0).form("redrive")

		for name, harm := range map[string]func(r *http.Request, f url.Values){
			"no token":                   func(_ *http.Request, f url.Values) { f.Del("token") },
			"an empty token":             func(_ *http.Request, f url.Values) { f.Set("token", "") },
			"garbage":                    func(_ *http.Request, f url.Values) { f.Set("token", "AAAA") },
			"a changed token":            func(_ *http.Request, f url.Values) { f.Set("token", "B"+f.Get("token")[1:]) },
			"the token of another":       func(_ *http.Request, f url.Values) { f.Set("token", foreign.Get("token")) },
			"the token of another run":   func(_ *http.Request, f url.Values) { f.Set("token", older.Get("token")) },
			"no cookie":                  func(r *http.Request, _ url.Values) { r.Header.Del("Cookie") },
			"another cookie":             func(r *http.Request, _ url.Values) { r.Header.Set("Cookie", other.cookie) },
			"a short cookie":             func(r *http.Request, _ url.Values) { r.Header.Set("Cookie", "eventbus-console=AAAA") },
			"another site":               func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"another site of the domain": func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			"an old browser, another site": func(r *http.Request, _ url.Values) {
				r.Header.Del("Sec-Fetch-Site")
				r.Header.Set("Origin", "http://evil.example")
			},
			"no origin": func(r *http.Request, _ url.Values) {
				r.Header.Del("Sec-Fetch-Site")
				r.Header.Set("Origin", "null")
			},
		} {
			fields := url.Values{}
			for k, v := range good {
				fields[k] = v
			}
			probe := h.post(fields)
			probe.Header.Set("Cookie", h.cookie)
			harm(probe, fields)
			r := h.post(fields)
			r.Header = probe.Header
			w := h.ask(r)
			require.Equal(t, http.StatusForbidden, w.Code, name)
			require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
			require.Len(t, ids(t, m, "orders.dlq"), 4, name)
		}
		time.Sleep(13 * time.Hour)
		require.Equal(t, http.StatusForbidden, h.send(h.post(good)).Code, "a form of yesterday")
		_, good = h.letter("orders.dlq", 0).form("redrive")
		require.Equal(t, http.StatusSeeOther, h.send(h.post(good)).Code)
		require.Len(t, ids(t, m, "orders.dlq"), 3)
	})
}

// The cookie cannot be read by a script, and a foreign page cannot send it.
func TestCookie(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/letters?topic=orders.dlq", http.NoBody)
		c := h.ask(r).Result().Cookies()
		require.Len(t, c, 1)
		require.True(t, c[0].HttpOnly)
		require.True(t, c[0].Secure)
		require.Equal(t, http.SameSiteStrictMode, c[0].SameSite)
		require.Empty(t, c[0].Domain)
		h.open("letters?topic=orders.dlq")
		was := h.cookie
		require.NotEmpty(t, was)
		h.open("letters?topic=orders.dlq")
		require.Equal(t, was, h.cookie, "a browser keeps its cookie")
	})
}

// Only a form of bounded size is read.
func TestOtherBodies(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		_, good := h.letter("orders.dlq", 0).form("redrive")
		for kind, want := range map[string]int{
			"": 415, "application/json": 415, "text/plain": 415, "multipart/form-data; boundary=x": 415, "application/x-www-form-urlencoded;": 303,
		} {
			r := h.post(good)
			r.Header.Set("Content-Type", kind)
			require.Equal(t, want, h.send(r).Code, kind)
		}
		good.Set("payload", strings.Repeat("x", 600<<10))
		require.Equal(t, http.StatusRequestEntityTooLarge, h.send(h.post(good)).Code)
		good.Set("payload", "")
		inQuery := h.post(url.Values{"token": good["token"]})
		inQuery.URL.RawQuery = "verb=discard&topic=orders.dlq"
		require.Equal(t, http.StatusBadRequest, h.send(inQuery).Code, "a change is never in the address")
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			r := h.post(good)
			r.Method = method
			w := h.send(r)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
			require.Equal(t, "POST", w.Header().Get("Allow"))
		}
		require.Len(t, ids(t, m, "orders.dlq"), 3, "the one good form")
		for name, value := range map[string]string{"verb": "burn", "topic": "a/b", "rate": "-1", "before": "now", "from": "x", "found": strings.Repeat("9", 50)} {
			bad := url.Values{}
			for k, v := range good {
				bad[k] = v
			}
			bad.Set(name, value)
			require.Equal(t, http.StatusBadRequest, h.send(h.post(bad)).Code, name)
		}
	})
}

// No GET changes anything, not even one with the fields of a form.
func TestGetNeverWrites(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		_, fields := h.letter("orders.dlq", 0).form("redrive")
		fields.Set("name", "billing")
		fields.Set("to", "latest")
		before := []any{ids(t, m, "orders.dlq"), last(t, m, "orders").Position}
		for _, verb := range []string{"redrive", "edit", "stop", "pause", "resume", "discard", "reset", "delete-group"} {
			fields.Set("verb", verb)
			for _, path := range []string{"act", "confirm", "edit", "group", "letters", "job", "jobs"} {
				h.answer(path + "?" + fields.Encode())
			}
		}
		require.Equal(t, before, []any{ids(t, m, "orders.dlq"), last(t, m, "orders").Position})
		groups, err := m.Groups(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, []string{"audit", "billing"}, groups)
		pause, err := m.Paused(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Zero(t, pause)
	})
}

// A handler below a path works with a cookie of that path, and every redirect stays below it.
func TestChangesBelowAPath(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	defer b.Close()
	letters(t, b, 1)
	attach(t, b, "orders", "billing")
	mux := http.NewServeMux()
	mux.Handle("/ops/bus/", http.StripPrefix("/ops/bus", console.Handler(b, console.Options{Allow: everything, Logger: new(logBuffer).logger()})))
	server := httptest.NewServer(mux)
	defer server.Close()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar}
	get := func(path string) page {
		answer, err := client.Get(server.URL + "/ops/bus/" + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		return parse(t, responseBody(t, answer))
	}
	rows := get("topic?name=orders.dlq&order=oldest")
	p := get(rows.link(rows.cells("Events of")[0]["Position"]))
	at, err := url.Parse(server.URL + "/ops/bus/act")
	require.NoError(t, err)
	require.Len(t, jar.Cookies(at), 1)
	outside, err := url.Parse(server.URL + "/ops/")
	require.NoError(t, err)
	require.Empty(t, jar.Cookies(outside), "other parts of the server do not get the cookie")
	_, fields := p.form("redrive")
	answer, err := client.PostForm(at.String(), fields)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "/ops/bus/job", answer.Request.URL.Path)
	require.Equal(t, "1 dead letter redriven", parse(t, responseBody(t, answer)).byID("result"))
	require.Empty(t, ids(t, b, "orders.dlq"))
	require.NotZero(t, eventbus.EventOf(last(t, b, "orders")).ID)
}

// A backend without a verb has no button, and the page says why.
func TestButtonsOfABackendWithoutVerbs(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, lacking{m.Backend, m, m, m}, console.Options{})
		p := h.open("group?topic=orders&name=billing")
		require.False(t, p.has("pause"))
		require.True(t, p.has("reset"))
		require.Contains(t, p.text, "This backend does not support: pause, resume.")
		p = h.open("letters?topic=orders.dlq")
		require.False(t, p.has("discard"))
		require.Contains(t, p.text, "This backend does not support: redrive, discard.")
		code, _ := h.answer("confirm?verb=discard&topic=orders.dlq")
		require.Equal(t, 501, code)
	})
}

// A lacking backend can neither pause groups nor remove messages.
type lacking struct {
	backend.Backend
	backend.Admin
	backend.Statser
	backend.Reader
}
