package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

// A knowsLittle can only list.
type knowsLittle struct{ backend.Backend }

func (knowsLittle) Topics(context.Context) ([]string, error) {
	return []string{"orders", "orders.dlq"}, nil
}

func (knowsLittle) Groups(_ context.Context, topic string) ([]string, error) {
	if topic == "orders" {
		return []string{"billing"}, nil
	}
	return nil, nil
}

func (knowsLittle) DeleteTopic(context.Context, string) error { return errors.ErrUnsupported }

func (knowsLittle) DeleteGroup(context.Context, string, string) error { return errors.ErrUnsupported }

func (knowsLittle) ResetGroup(context.Context, string, string, backend.Start) error {
	return errors.ErrUnsupported
}

// A panicking backend has a driver with a mistake.
type panicking struct{ *countingBackend }

func (panicking) Stats(context.Context, string, string) (backend.Stats, error) { panic("a mistake") }

func (panicking) Read(context.Context, string, backend.Start, int) ([]backend.Message, error) {
	panic("a mistake")
}

func (panicking) Now(context.Context, string) (time.Time, error) { panic("a mistake") }

// A mistake of a driver does not end the program.
func TestADriverPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, panicking{m}, console.Options{})
		require.Equal(t, "unknown", v.page("").cells("Groups")[0]["Lag"])
		require.Contains(t, v.page("group?topic=orders&name=billing").text, "the driver has panicked: a mistake")
		for _, url := range []string{"topic?name=orders", "topic?name=orders&order=oldest", "topic?name=orders&id=e-1", "event?topic=orders&from=&at=1", "schedule?topic=orders", "lifecycle?topic=orders", "processes"} {
			code, body := v.answer(url)
			require.Equal(t, http.StatusInternalServerError, code)
			require.Contains(t, body, "panicked: a mistake")
		}
		require.Contains(t, v.page("letters?topic=orders.dlq").text, "unknown")
	})
}

func TestOnlyReadingIsAllowed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		v := visit(t, m, console.Options{})
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace, "PROPFIND"} {
			w := v.ask(httptest.NewRequestWithContext(t.Context(), method, "/", http.NoBody))
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
		require.Zero(t, m.calls.Load(), "nobody was asked")
		w := v.ask(httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/", http.NoBody))
		require.Equal(t, http.StatusOK, w.Code)
		require.Zero(t, w.Body.Len())
		require.NotEqual(t, "0", w.Header().Get("Content-Length"))
	})
}

// Each answer has the headers that protect it, whatever it is.
func TestHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		for _, url := range []string{"", "group?topic=orders&name=billing", "topic?name=orders", "letters?topic=orders.dlq", "schedule?topic=orders", "lifecycle?topic=orders", "processes", "nowhere", "topic", "assets/console.js", "assets/console.css", "assets/", "?" + strings.Repeat("a", 9000)} {
			h := v.ask(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+url, http.NoBody)).Header()
			require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
				"frame-ancestors 'none'; base-uri 'none'; form-action 'self'", h.Get("Content-Security-Policy"), url)
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
			require.Equal(t, "DENY", h.Get("X-Frame-Options"))
			require.NotEmpty(t, h.Get("Content-Type"))
		}
	})
}

// A browser may keep the assets, because their URLs are the same in each process.
func TestAssets(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		want := visit(t, m, console.Options{}).page("").all("script")[0].attrs["src"]
		for range 10 {
			require.Equal(t, want, visit(t, m, console.Options{}).page("").all("script")[0].attrs["src"])
		}
		w := visit(t, m, console.Options{}).ask(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+want, http.NoBody))
		require.Contains(t, w.Header().Get("Cache-Control"), "immutable")
		require.Equal(t, "text/javascript; charset=utf-8", w.Header().Get("Content-Type"))
	})
}

// The policy of the pages allows nothing inside a page, and the pages need nothing.
func TestNothingIsInline(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := change(t, m, console.Options{})
		v.submit(v.letter("orders.dlq", 0), "redrive")
		for _, url := range []string{
			"jobs", v.open("jobs").link("Redrive one dead letter of orders.dlq"), "edit?topic=orders.dlq&from=&at=" + v.open("topic?name=orders.dlq&order=oldest").cells("Events of")[0]["Position"],
			"confirm?verb=discard&topic=orders.dlq", "confirm?verb=reset&topic=orders&name=billing&to=latest", "", "group?topic=orders&name=billing", "topic?name=orders", "topic?name=orders&id=e-1", "letters?topic=orders.dlq", "schedule?topic=orders", "lifecycle?topic=orders", "processes",
		} {
			for _, e := range v.page(url).elements {
				require.NotEqual(t, "style", e.name)
				if e.name == "script" {
					require.True(t, strings.HasPrefix(e.attrs["src"], "assets/console.js?v="))
					require.Empty(t, strings.TrimSpace(e.text))
				}
				for name, value := range e.attrs {
					require.NotEqual(t, "style", name)
					require.False(t, strings.HasPrefix(name, "on"), name)
					require.False(t, strings.HasPrefix(strings.ToLower(value), "javascript:"))
				}
			}
		}
	})
}

// A foreign page lets its own name point to this machine.
func TestHosts(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		v := visit(t, m, console.Options{Hosts: []string{"localhost", "127.0.0.1", "::1", "Bus.Example.com"}})
		for host, ok := range map[string]bool{
			"localhost": true, "LOCALHOST:8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "::1": true, "bus.example.com.": true,
			"evil.example": false, "evil.example:8080": false, "localhost.evil.example": false, "": false, "127.0.0.2": false,
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Host = host
			w := v.ask(r)
			if ok {
				require.Equal(t, http.StatusOK, w.Code, host)
			} else {
				require.Equal(t, http.StatusMisdirectedRequest, w.Code, host)
				require.NotContains(t, w.Body.String(), "<")
			}
		}
	})
}

func TestPathsAreExact(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		for _, path := range []string{
			"//", "/../", "/topic/", "/topic/../", "/./topic", "/%2e%2e/topic?name=orders", "/assets/../console.go", "/assets/%2e%2e/templates/base.html",
			"/assets/console.js/", "/templates/base.html", "/Topic?name=orders", "/topic%00?name=orders", "/topic%2f?name=orders",
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
			w := v.ask(r)
			require.Equal(t, http.StatusNotFound, w.Code, path)
			require.Empty(t, w.Header().Get("Location"), path)
			below := strings.Contains(strings.TrimPrefix(path, "/"), "/")
			require.Equal(t, below, !strings.Contains(w.Body.String(), "href="), "%s: a relative link does not work there", path)
		}
		calls := m.calls.Load()
		for _, name := range []string{"", "..", "a/b", "a+b", "%00", "<script>", "a%20b", strings.Repeat("x", 300), "orders%0a"} {
			for _, url := range []string{"topic?name=", "group?topic=", "letters?topic=", "schedule?topic=", "lifecycle?topic=", "event?from=&at=1&topic="} {
				code, _ := v.answer(url + name)
				require.Equal(t, http.StatusNotFound, code, url+name)
			}
		}
		require.Equal(t, calls, m.calls.Load(), "the backend is not asked for names that it cannot have")
		for url, want := range map[string]int{
			"event?topic=orders&from=garbage&at=1": http.StatusNotFound, "event?topic=orders": http.StatusNotFound, "event?topic=orders&at=garbage": http.StatusNotFound,
			"event?topic=orders&from=after+garbage&at=1": http.StatusBadRequest, "topic?name=orders&from=garbage": http.StatusBadRequest,
			"topic?name=orders&since=garbage": http.StatusBadRequest, "topic?name=nowhere": http.StatusNotFound, "topic?name=orders&partition=5": http.StatusNotFound,
			"topic?name=orders&before=garbage": http.StatusOK, "topic?name=orders&%zz=1": http.StatusOK, "?" + strings.Repeat("a", 9000): http.StatusRequestURITooLong,
		} {
			code, body := v.answer(url)
			require.Equal(t, want, code, url)
			if code != http.StatusRequestURITooLong {
				parse(t, body)
			}
		}
	})
}
