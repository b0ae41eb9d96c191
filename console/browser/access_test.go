package browser_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A view is a page of the console that a test looks at.
type view struct {
	name, url string
	variant   bool // it has the controls of an earlier view, with other data
}

// views returns a URL of each page, in each of its forms.
func (s *stand) views(w *tab) []view {
	event := func(page string) string {
		w.open(page)
		return eval[string](w, `document.querySelector("table.events tbody a").getAttribute("href")`)
	}
	order := event("topic?name=" + ordersTopic)
	w.open(order)
	bury := eval[string](w, `document.querySelector("[data-action=bury]").getAttribute("href")`)
	return []view{
		{"overview", "", false},
		{"filtered overview", "?q=shop&status=paused", true},
		{"empty overview", "?q=nothing", true},
		{"group", "group?topic=" + ordersTopic + "&name=billing", false},
		{"paused group", "group?topic=" + ordersTopic + "&name=audit", true},
		{"group in partitions", "group?topic=" + parcelsTopic + "&name=tracking", true},
		{"topic", "topic?name=" + ordersTopic, false},
		{"topic in partitions", "topic?name=" + parcelsTopic + "&partition=1", false},
		{"search", "topic?name=" + ordersTopic + "&key=customer-ada", true},
		{"event", order, false},
		{"event in hex", order + "&as=hex", true},
		{"letters", "letters?topic=" + lettersTopic, false},
		{"letters of a search", "letters?topic=" + lettersTopic + "&type=order.placed", true},
		{"letter", event("letters?topic=" + lettersTopic + "&type=order.placed"), false},
		{"retries of a group", "group?topic=" + ordersTopic + "&name=loyalty", true},
		{"lifecycle", "lifecycle?topic=" + ordersTopic, false},
		{"lifecycle of a group", "lifecycle?topic=" + ordersTopic + "&group=loyalty", true},
		{"processes", "processes", false},
		{"schedule", "schedule?topic=" + productsTopic, false},
		{"pause and reset", "group?topic=" + ordersTopic + "&name=reports", false},
		{"question", "confirm?verb=reset&to=latest&topic=" + ordersTopic + "&name=reports", false},
		{"question about letters", "confirm?verb=redrive&topic=" + lettersTopic, false},
		{"question about an event", bury, false},
		{"edit", "edit?" + strings.TrimPrefix(event("letters?topic="+lettersTopic+"&type=order.placed"), "event?"), false},
		{"jobs", "jobs", false},
		{"failure", "topic?name=nowhere", false},
	}
}

// newStill is like newStand. No group moves anymore, so that all pages stay the same.
func newStill(t *testing.T) *stand {
	t.Helper()
	s := newStand(t, kinds[0], time.Hour)
	w := newTab(t, s.site.origin())
	w.open("")
	w.until("the groups are stuck", func() bool {
		return w.row("shipping")["Status"] == "stuck" && w.row("mail")["Status"] == "stuck" && w.row("loyalty")["Status"] == "behind"
	})
	return s
}

// axe returns the source of axe-core.
func axe(t testing.TB) string {
	source, err := os.ReadFile("../../.bin/axe.min.js")
	if err != nil {
		missing(t, "axe-core is missing: make .bin/axe.min.js")
	}
	return string(source)
}

// axe-core finds nothing in any page, light or dark, on a screen or a phone. On the phone no page is
// wider than the screen.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	source := axe(t)
	// Colours don't depend on the size, so two of the four combinations show each scheme and each size.
	for _, look := range []struct{ scheme, size string }{{"light", "desktop"}, {"dark", "phone"}} {
		t.Run(look.scheme+" "+look.size, func(t *testing.T) {
			t.Parallel()
			w := newTab(t, s.site.origin())
			w.expect("log: error network: Failed to load resource: the server responded with a status of 404")
			w.colours(look.scheme)
			if w.desktop(); look.size == "phone" {
				w.phone()
			}
			for _, v := range s.views(w) {
				w.open(v.url)
				w.allows(v, source)
			}
			w.quiet()
		})
	}
}

// allows requires that axe-core finds nothing on the current page, and that the page fits the screen.
func (w *tab) allows(v view, source string) {
	w.t.Helper()
	eval[any](w, source+"; 0")
	found := eval[[]string](w, `axe.run(document, {resultTypes: ["violations"]}).then(r =>
		r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + v.help + ": " + n.html)))`)
	require.Empty(w.t, found, v.name)
	// A phone makes innerWidth as large as the page.
	require.LessOrEqual(w.t, eval[int](w, "document.documentElement.scrollWidth"), eval[int](w, "document.documentElement.clientWidth"), "the page %q is wider than the screen", v.name)
}

// A visitor reaches each link, field and button by the Tab key, in the order of the page, and sees
// where the focus is.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := newStill(t)
	w := newTab(t, s.site.origin())
	w.expect("log: error network: Failed to load resource: the server responded with a status of 404")
	w.desktop()
	for _, v := range s.views(w) {
		if !v.variant {
			w.open(v.url)
			w.tabsThrough(v)
		}
	}
	w.open("topic?name=" + productsTopic)
	w.do(chromedp.KeyEvent("\t\r")) // the link to the content
	require.Equal(t, "main", eval[string](w, "document.activeElement.id"))
	w.submit("id", "as-text")
	w.until("Enter sends the search", func() bool { return strings.Contains(w.text("main"), "1 event found") })
	w.quiet()
}

// tabsThrough presses Tab for each control on the current page.
func (w *tab) tabsThrough(v view) {
	w.t.Helper()
	// The live parts are replaced meanwhile, so a control is known by its text and its target.
	const name = `(e => [e.localName, e.getAttribute("href") ?? e.name ?? "", e.innerText.trim()].join(" "))`
	all := eval[[]string](w, `[...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].map(`+name+`)`)
	require.NotEmpty(w.t, all, v.name)
	for i, want := range all[:min(len(all), 30)] { // further rows are like the first ones
		w.do(chromedp.KeyEvent("\t"))
		focus := eval[struct { // one call for both, because a page has many controls
			Name string
			Seen bool
		}](w, `(() => {
			const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
			const inside = box.width > 0 && box.height > 0 && box.top >= 0 && box.left >= 0 && box.top < innerHeight && box.right <= innerWidth;
			return {Name: `+name+`(e), Seen: inside && e.matches(":focus-visible") && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2};
		})()`)
		require.Equal(w.t, want, focus.Name, "control %d of the page %q", i, v.name)
		require.True(w.t, focus.Seen, "%q is not visible on the page %q", want, v.name)
	}
}
