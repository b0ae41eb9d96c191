package browser_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A view is a page of the console that a test looks at.
type view struct{ name, url string }

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
		{"overview", ""},
		{"filtered overview", "?q=shop&status=paused"},
		{"empty overview", "?q=nothing"},
		{"group", "group?topic=" + ordersTopic + "&name=billing"},
		{"paused group", "group?topic=" + ordersTopic + "&name=audit"},
		{"group in partitions", "group?topic=" + parcelsTopic + "&name=tracking"},
		{"topic", "topic?name=" + ordersTopic},
		{"topic in partitions", "topic?name=" + parcelsTopic + "&partition=1"},
		{"search", "topic?name=" + ordersTopic + "&key=customer-ada"},
		{"event", order},
		{"event in hex", order + "&as=hex"},
		{"letters", "letters?topic=" + lettersTopic},
		{"letters of a search", "letters?topic=" + lettersTopic + "&type=order.placed"},
		{"letter", event("letters?topic=" + lettersTopic + "&type=order.placed")},
		{"retries of a group", "group?topic=" + ordersTopic + "&name=loyalty"},
		{"lifecycle", "lifecycle?topic=" + ordersTopic},
		{"lifecycle of a group", "lifecycle?topic=" + ordersTopic + "&group=loyalty"},
		{"processes", "processes"},
		{"schedule", "schedule?topic=" + productsTopic},
		{"pause and reset", "group?topic=" + ordersTopic + "&name=reports"},
		{"question", "confirm?verb=reset&to=latest&topic=" + ordersTopic + "&name=reports"},
		{"question about letters", "confirm?verb=redrive&topic=" + lettersTopic},
		{"question about an event", bury},
		{"edit", "edit?" + strings.TrimPrefix(event("letters?topic="+lettersTopic+"&type=order.placed"), "event?")},
		{"jobs", "jobs"},
		{"failure", "topic?name=nowhere"},
	}
}

// newStill is like newStand. No group moves any more, so that all pages stay the same.
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
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range []string{"desktop", "phone"} {
			t.Run(scheme+" "+size, func(t *testing.T) {
				t.Parallel()
				w := newTab(t, s.site.origin())
				w.expect("log: error network: Failed to load resource: the server responded with a status of 404")
				w.colours(scheme)
				if w.desktop(); size == "phone" {
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
}

// allows requires that axe-core finds nothing in the present page, and that the page fits the screen.
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
		w.open(v.url)
		w.tabsThrough(v)
	}
	w.open("topic?name=" + productsTopic)
	w.do(chromedp.KeyEvent("\t\r")) // the link to the content
	require.Equal(t, "main", eval[string](w, "document.activeElement.id"))
	w.submit("id", "as-text")
	w.until("Enter sends the search", func() bool { return strings.Contains(w.text("main"), "1 event found") })
	w.quiet()
}

// tabsThrough presses Tab for each control of the present page.
func (w *tab) tabsThrough(v view) {
	w.t.Helper()
	// The live parts are replaced meanwhile, so a control is known by its text and its target.
	const name = `(e => [e.localName, e.getAttribute("href") ?? e.name ?? "", e.innerText.trim()].join(" "))`
	all := eval[[]string](w, `[...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].map(`+name+`)`)
	require.NotEmpty(w.t, all, v.name)
	for i, want := range all[:min(len(all), 50)] { // further rows are like the first ones
		w.do(chromedp.KeyEvent("\t"))
		require.Equal(w.t, want, eval[string](w, name+`(document.activeElement)`), "control %d of the page %q", i, v.name)
		require.True(w.t, eval[bool](w, `(() => {
			const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
			const inside = box.width > 0 && box.height > 0 && box.top >= 0 && box.left >= 0 && box.top < innerHeight && box.right <= innerWidth;
			return inside && e.matches(":focus-visible") && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2;
		})()`), fmt.Sprintf("%q is not seen on the page %q", want, v.name))
	}
}
