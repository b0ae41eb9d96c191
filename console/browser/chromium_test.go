package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience bounds each wait for a page, on a busy machine.
const patience = 60 * time.Second

// chromium is the one browser of all tests. It ends with the process of the tests.
var chromium struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if chromium.end != nil {
		chromium.end()
	}
	os.Exit(code)
}

// binary returns the path of Chromium. Without it the test is skipped, or fails if
// EVENTBUS_REQUIRE_BROKERS=1.
func binary(t testing.TB) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "chromium is not installed; make services installs it")
	return ""
}

func missing(t testing.TB, why string) {
	if os.Getenv("EVENTBUS_REQUIRE_BROKERS") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// browser returns the context of Chromium. The names under "example" are this machine, and no other
// name but localhost is known to it.
func browser(t testing.TB) context.Context {
	path := binary(t)
	chromium.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path),
			chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"),
			chromedp.Flag("disable-dev-shm-usage", true),
		)
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox) // it refuses to start as root otherwise
		}
		allocator, end := chromedp.NewExecAllocator(context.Background(), options...) //nolint:usetesting // it outlives the test
		ctx, cancel := chromedp.NewContext(allocator)
		chromium.ctx, chromium.end = ctx, func() { cancel(); end() }
		chromium.err = chromedp.Do(ctx)
	})
	require.NoError(t, chromium.err)
	return chromium.ctx
}

// A tab is a tab of the browser in a profile of its own. It notes all that a page of the console never
// does: scripts that fail, dialogs, refused content, and requests to other origins.
type tab struct {
	t      testing.TB
	ctx    context.Context
	origin string // of the console, such as http://127.0.0.1:8080

	scripted bool // pages may run scripts

	mu     sync.Mutex
	alarms []string
	allow  []string // beginnings of alarms that a test expects
}

// watched runs in each document before its own scripts. The hostile texts set "pwned".
const watched = `addEventListener("securitypolicyviolation", e => console.error("violation: " + e.violatedDirective + " " + e.blockedURI));`

func newTab(t testing.TB, origin string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	w := &tab{t: t, ctx: ctx, origin: origin, scripted: true}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, w.listen))
	call(w, network.Enable, network.EnableParams{})
	call(w, log.Enable, cdp.Empty{})
	call(w, audits.Enable, cdp.Empty{})
	call(w, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watched})
	return w
}

// call runs a command of the browser's protocol.
func call[P, R any](w *tab, command cdp.Command[P, R], params P) R {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	r, err := chromedp.Call(ctx, command, params)
	require.NoError(w.t, err)
	return r
}

// listen notes events of the browser.
func (w *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		details, _ := json.Marshal(e.ExceptionDetails)
		w.alarm("exception: " + string(details))
	case *runtime.EventConsoleAPICalled:
		var texts []string
		for _, a := range e.Args {
			texts = append(texts, string(a.Value))
		}
		w.alarm(fmt.Sprintf("console.%s: %s", e.Type, strings.Join(texts, " ")))
	case *log.EventEntryAdded:
		w.alarm(fmt.Sprintf("log: %s %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *audits.EventIssueAdded:
		details, _ := json.Marshal(e.Issue.Details)
		w.alarm(fmt.Sprintf("issue: %s %s", e.Issue.Code, details))
	case *page.EventJavascriptDialogOpening:
		w.alarm("dialog: " + e.Message)
		go chromedp.Call(w.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}) // its error does not matter: the tab may have gone
	case *page.EventWindowOpen:
		w.alarm("window: " + e.URL)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, w.origin+"/") && !strings.HasPrefix(e.Request.URL, "data:,") {
			w.alarm("request: " + e.Request.Method + " " + e.Request.URL)
		}
	}
}

func (w *tab) alarm(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarms = append(w.alarms, text)
}

// expect says which alarms a test provokes, by their beginnings.
func (w *tab) expect(beginnings ...string) { w.allow = append(w.allow, beginnings...) }

// quiet requires that no alarm was noted but the expected ones, and returns these.
func (w *tab) quiet() (expected []string) {
	w.t.Helper()
	require.Equal(w.t, "undefined", eval[string](w, "typeof pwned"), "a text of an event ran as a script")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.alarms {
		known := false
		for _, beginning := range w.allow {
			known = known || strings.HasPrefix(a, beginning)
		}
		require.True(w.t, known, "the page has done something that it must not: %s", a)
		expected = append(expected, a)
	}
	return expected
}

func (w *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(w.t, chromedp.Do(ctx, actions...))
}

// open opens a page of the console.
func (w *tab) open(url string) {
	w.t.Helper()
	w.do(chromedp.Navigate(w.origin + "/" + url))
}

// eval returns the value of an expression in the page. If another page replaces this one meanwhile, it is
// the value there.
func eval[T any](w *tab, expression string) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for {
		v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise, asUser))
		if err != nil && strings.Contains(err.Error(), "navigated") && ctx.Err() == nil {
			continue
		}
		require.NoError(w.t, err, expression)
		return v
	}
}

// asUser makes the browser treat the acts of a script, such as a click, as acts of a person.
func asUser(p *runtime.EvaluateParams) {
	yes := true
	p.UserGesture = &yes
}

// text returns the text of the elements that match, as the page shows it, with one space between words.
func (w *tab) text(selector string) string {
	w.t.Helper()
	return strings.Join(strings.Fields(eval[string](w, fmt.Sprintf(`[...document.querySelectorAll(%q)].map(e => e.innerText).join(" ")`, selector))), " ")
}

// rows returns the texts of the cells of all tables whose caption begins so, by the labels of the columns.
func (w *tab) rows(caption string) []map[string]string {
	w.t.Helper()
	return eval[[]map[string]string](w, fmt.Sprintf(`[...document.querySelectorAll("table")].filter(t => t.caption.innerText.startsWith(%q)).flatMap(t => [...t.tBodies[0].rows]
		.map(r => Object.fromEntries([...r.cells].map(c => [c.dataset.label, c.innerText.trim().replace(/\s+/g, " ")]))))`, caption))
}

// click follows the link, or presses the button, that has this text.
func (w *tab) click(text string) {
	w.t.Helper()
	w.follow(fmt.Sprintf(`[...document.querySelectorAll("a, button")].find(e => e.innerText.trim().replace(/\s+/g, " ") === %q)`, text))
}

// press presses the button of a form.
func (w *tab) press(form string) {
	w.t.Helper()
	w.follow(fmt.Sprintf(`document.querySelector("#%s button")`, form))
}

// follow clicks the element that an expression finds, and waits for the next page.
func (w *tab) follow(element string) {
	w.t.Helper()
	before := eval[float64](w, "performance.timeOrigin")
	require.True(w.t, eval[bool](w, fmt.Sprintf(`(() => {
		const found = %s;
		found?.click();
		return Boolean(found);
	})()`, element)), "there is no %s on %s", element, w.text("h1"))
	w.until("the next page", func() bool {
		return eval[bool](w, fmt.Sprintf(`performance.timeOrigin !== %f && document.readyState === "complete"`, before))
	})
}

// until waits until a condition holds.
func (w *tab) until(what string, holds func() bool) {
	w.t.Helper()
	for limit := time.Now().Add(patience); !holds(); {
		if time.Now().After(limit) {
			require.FailNow(w.t, what, "%s; the page shows:\n%s", what, w.text("body"))
		}
		select {
		case <-w.ctx.Done():
			require.FailNow(w.t, "the tab has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// phone gives the tab the size of a phone.
func (w *tab) phone() {
	call(w, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: 844, DeviceScaleFactor: 2, Mobile: true})
}

// desktop gives the tab the size of a screen.
func (w *tab) desktop() {
	call(w, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 800, DeviceScaleFactor: 1})
}

// scripts lets pages run scripts, or not. The test itself may.
func (w *tab) scripts(run bool) {
	w.scripted = run
	call(w, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !run})
}

// colours chooses "light" or "dark".
func (w *tab) colours(scheme string) {
	call(w, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// submit writes a text into the field of this name, and presses Enter there.
func (w *tab) submit(field, text string) {
	w.do(chromedp.SendKeys(chromedp.CSS(fmt.Sprintf("input[name=%q]", field)), text+"\r"))
}

// fill writes a text into the field of this name in a form.
func (w *tab) fill(form, field, text string) {
	w.do(chromedp.SetValue(chromedp.CSS(fmt.Sprintf("#%s [name=%q]", form, field)), text))
}
