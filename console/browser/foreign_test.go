package browser_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

// A diary records the requests that reach a console from foreign pages.
type diary struct {
	next http.Handler

	mu    sync.Mutex
	lines []string // method, path and status
}

func (d *diary) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := &noting{ResponseWriter: w, code: http.StatusOK}
	d.next.ServeHTTP(s, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprint(r.Method, " ", r.URL.Path, " ", s.code))
}

// count returns how many requests have begun so, and how many of them had another status.
func (d *diary) count(beginning string, status int) (all, others int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.lines {
		if strings.HasPrefix(line, beginning) {
			all++
			if !strings.HasSuffix(line, fmt.Sprint(" ", status)) {
				others++
			}
		}
	}
	return all, others
}

type noting struct {
	http.ResponseWriter
	code int
}

func (n *noting) WriteHeader(code int) {
	n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// A siege is a console with a shop, and a tab at the page of an attacker.
type siege struct {
	*stand
	diary *diary
	*tab
}

// besiege opens a page of the origin evil.example with this body, beside a console in which the visitor
// may do everything.
func besiege(t *testing.T, body func(console string) string) *siege {
	t.Helper()
	binary(t)
	b, _ := kinds[0].open(t)
	d := &diary{next: console.Handler(b, writable())}
	s := &stand{kind: kinds[0], shop: newShop(t, b, time.Second), site: serve(t, d)}
	s.order(1)
	page := body(s.site.origin())
	evil := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><title>evil</title><link rel=icon href=data:,><body>", page)
	}))
	w := newTab(t, evil.as("evil.example"))
	w.open("")
	return &siege{s, d, w}
}

func TestForeignPagesCannotFrame(t *testing.T) {
	t.Parallel()
	s := besiege(t, func(console string) string {
		return fmt.Sprintf(`<iframe src="%[1]s/"></iframe><iframe sandbox src="%[1]s/letters?topic=shop.orders.dlq"></iframe><object data="%[1]s/"></object><embed src="%[1]s/topic?name=shop.orders">`, console)
	})
	const refused = `log: error security: Framing '`
	s.expect(refused, "request: GET "+s.site.origin(), "issue: ContentSecurityPolicyIssue", "issue: BlockedByResponseIssue", "log: error network: Failed to load resource: net::ERR_BLOCKED_BY_RESPONSE")
	s.until("each frame was asked for", func() bool { all, _ := s.diary.count("GET ", 0); return all >= 4 })
	var framed int
	s.until("each frame is refused", func() bool {
		framed = 0
		for _, a := range s.quiet() {
			if strings.Contains(a, "frame-ancestors") || strings.Contains(a, "ERR_BLOCKED_BY_RESPONSE") {
				framed++
			}
		}
		return framed >= 4
	})
}

// A page of another origin can neither post to the console nor read from it, although the browser has
// the cookie of the console.
func TestForeignPagesCannotPostOrRead(t *testing.T) {
	t.Parallel()
	s := besiege(t, func(console string) string {
		return fmt.Sprintf(`<form method=post action="%s/act"><input name=verb value=resume><input name=topic value=shop.orders><input name=name value=audit><input name=token></form>`, console)
	})
	s.expect("request: ", "log: error ", "log: warning ", "issue: ")
	foreign := eval[string](s.tab, "location.href")
	// The visitor has used the console before, so the browser has a cookie. The attacker has a token, of a
	// browser of his own.
	token := newTab(t, s.site.origin())
	token.open("group?topic=" + ordersTopic + "&name=audit")
	theirs := eval[string](token, `document.querySelector("#resume [name=token]").value`)
	s.do(chromedp.Navigate(s.site.origin()+"/group?topic="+ordersTopic+"&name=audit"), chromedp.Navigate(foreign))

	form := `new URLSearchParams({verb: "resume", topic: "shop.orders", name: "audit", token: ` + strconv.Quote(theirs) + `})`
	for _, path := range []string{"act", "", "group?topic=shop.orders&name=audit", "letters?topic=shop.orders.dlq", "assets/console.js"} {
		at := s.site.origin() + "/" + path
		require.Equal(t, "sent", eval[string](s.tab, fmt.Sprintf(`fetch(%q, {method: "POST", mode: "no-cors", credentials: "include", body: %s}).then(r => "sent", e => "sent")`, at, form)))
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			require.Equal(t, "refused", eval[string](s.tab, fmt.Sprintf(`fetch(%q, {method: %q, credentials: "include"}).then(r => "answered", e => "refused")`, at, method)))
		}
		for _, element := range []string{"script", "img"} {
			require.Equal(t, "refused", eval[string](s.tab, fmt.Sprintf(`new Promise(done => {
				const e = document.createElement(%q);
				e.onload = () => done("loaded"); e.onerror = () => done("refused"); e.src = %q;
				document.body.append(e);
			})`, element, at)), "%s of %s", element, path)
		}
	}
	eval[any](s.tab, `document.forms[0].token.value = `+strconv.Quote(theirs)+`; document.forms[0].submit()`)
	s.until("the form was sent", func() bool { return strings.HasPrefix(eval[string](s.tab, "location.href"), s.site.origin()) })
	require.Equal(t, "this form was sent by another site", s.text("body"))

	acts, others := s.diary.count("POST /act ", http.StatusForbidden)
	require.GreaterOrEqual(t, acts, 3)
	require.Zero(t, others, "%v", s.diary.lines)
	for _, method := range []string{"POST / ", "POST /group ", "PUT ", "DELETE ", "OPTIONS "} {
		_, others = s.diary.count(method, http.StatusMethodNotAllowed)
		require.Zero(t, others, "%v", s.diary.lines)
	}
	s.unchanged()
}

// unchanged requires that nothing was done to the shop.
func (s *siege) unchanged() {
	t := s.shop.t
	pauser, err := backend.PauserOf(s.bus.Backend())
	require.NoError(t, err)
	p, err := pauser.Paused(t.Context(), ordersTopic, "audit")
	require.NoError(t, err)
	require.Equal(t, "ann", p.By)
	ms, err := backend.Read(t.Context(), s.bus.Backend(), ordersTopic, "", 10)
	require.NoError(t, err)
	require.Len(t, ms, 1)
}

// An attacker lets a name of his own point to this machine, so that his page and the console have one
// origin (DNS rebinding).
func TestForeignNames(t *testing.T) {
	t.Parallel()
	s := besiege(t, func(string) string { return "" })
	w := newTab(t, s.site.as("rebound.example"))
	w.expect("log: error network: Failed to load resource: the server responded with a status of 421",
		"log: error other: The Cross-Origin-Opener-Policy header has been ignored") // as for each name without TLS
	for _, page := range []string{"", "topic?name=" + ordersTopic, "assets/console.js"} {
		w.open(page)
		require.Equal(t, "the console does not serve this host name", w.text("body"))
		require.Equal(t, "421", eval[string](w, fmt.Sprintf(`fetch(%q).then(r => "" + r.status)`, "/"+page)))
	}
	w.quiet()
	friend := newTab(t, s.site.as("localhost"))
	friend.open("")
	require.Contains(t, friend.text("main"), ordersTopic)
	friend.quiet()
}

// A path is the name of a page, or nothing: no trick leads to a file, another page or another host.
func TestPathTricks(t *testing.T) {
	t.Parallel()
	s := besiege(t, func(string) string { return "" })
	w := newTab(t, s.site.origin())
	w.expect("log: error network: Failed to load resource: the server responded with a status of 4")
	for _, path := range []string{
		"//evil.example/", "/%2fevil.example", "/%5cevil.example", "..%2f..%2fetc/passwd", "%2e%2e%2f%2e%2e%2fconsole.go", "assets/..%2fconsole.go", "assets/%2e%2e%2ftemplates/base.html",
		"assets/", "assets", "templates/base.html", "topic/", "topic%2f?name=" + ordersTopic, "topic%00?name=" + ordersTopic, "TOPIC?name=" + ordersTopic, ";/topic", "topic;x=1?name=" + ordersTopic,
		"topic?name=..%2f" + ordersTopic, "topic?name=" + ordersTopic + "%00", "topic?name=%2f%2fevil.example", "letters?topic=..", "group?topic=" + ordersTopic + "&name=..%2faudit",
	} {
		w.open(path)
		status := eval[int](w, `performance.getEntriesByType("navigation")[0].responseStatus`)
		require.Equal(t, http.StatusNotFound, status, path)
		require.Equal(t, s.site.origin(), eval[string](w, "location.origin"), path)
	}
	w.quiet()
}

// Below a path of a program's server all links stay below the path.
func TestBelowAPath(t *testing.T) {
	t.Parallel()
	b, _ := kinds[0].open(t)
	shop := newShop(t, b, time.Millisecond)
	shop.order(25)
	shop.settled(4)
	mux := http.NewServeMux()
	mux.Handle("/ops/bus/", http.StripPrefix("/ops/bus", console.Handler(b, writable())))
	w := newTab(t, serve(t, mux).origin())
	w.open("ops/bus/")
	w.until("the letters are counted", func() bool { return len(w.rows("Dead-letter topics")) > 0 })
	for _, link := range []string{"billing", ordersTopic, "Oldest first", "eventbus", lettersTopic, "2", "1 ok", "Show all"} {
		if link == "1 ok" {
			w.click("eventbus")
			link = strings.TrimSpace(w.text(".status.ok:not(td *)"))
		}
		w.click(link)
		require.True(t, strings.HasPrefix(eval[string](w, "location.pathname"), "/ops/bus/"), link)
		require.NotEqual(t, "", eval[string](w, `getComputedStyle(document.querySelector("header")).display.replace("block", "")`), "the style is loaded")
	}
	w.quiet()
}
