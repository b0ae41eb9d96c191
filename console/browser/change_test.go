package browser_test

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

// result waits for the end of the job on the current page, and requires this result.
func (w *tab) result(want string) {
	w.t.Helper()
	w.until("the job ends", func() bool {
		if !w.scripted {
			w.do(chromedp.Reload()) // otherwise the page renews itself
		}
		return w.text("#word") == "done" || w.text("#word") == "failed"
	})
	require.Equal(w.t, "done", w.text("#word"), w.text("#job"))
	require.Contains(w.t, w.text("#result"), want)
	require.Equal(w.t, "ann", w.text("#who"))
	require.Zero(w.t, eval[int](w, `[...document.querySelectorAll("#stop")].filter(e => e.offsetParent !== null).length`), "a button that stops the job")
}

func (w *tab) group(name string) {
	w.t.Helper()
	w.open("group?topic=" + ordersTopic + "&name=" + name)
}

// groupsAreChanged pauses, resumes, resets and deletes a group, and looks at each result. In memory it
// pauses and resumes without scripts too.
func groupsAreChanged(w *tab, s *stand) {
	t := w.t
	scripts := []bool{true, false}
	if !s.inMemory() {
		scripts = scripts[:1]
	}
	for _, script := range scripts {
		w.scripts(script)
		w.group("reports")
		w.fill("pause", "why", "the report is wrong")
		w.fill("pause", "until", "2h")
		w.click("Pause")
		w.result("paused")
		w.until("the pause is shown", func() bool {
			w.group("reports")
			return strings.Contains(w.text("main"), "by ann, until 20") && strings.Contains(w.text("main"), ": the report is wrong")
		})
		w.click("Resume")
		w.result("is resumed")
	}
	w.scripts(true)
	w.group("reports")
	w.fill("reset", "to", "latest")
	w.click("Reset…")
	require.Contains(t, w.text("#ask"), fmt.Sprintf("%d", s.orders), "what is lost")
	w.click("Cancel")
	w.fill("reset", "to", "latest")
	w.click("Reset…")
	w.click("Reset")
	w.result("starts again")
	w.open("?q=reports")
	w.until("nothing is left", func() bool { return w.row("reports")["Lag"] == "0" })

	w.open("group?topic=" + ordersTopic + "&name=reports")
	w.click("Delete the group…")
	w.click("Delete")
	w.result("deleted")
	require.NotContains(t, s.groups(), "reports")
	w.open("jobs")
	require.Len(t, w.rows("Changes"), 2+2*len(scripts))
}

// eventsAreTakenAway makes an event that waits for an hour a dead letter, and deletes a topic that no group reads.
func eventsAreTakenAway(w *tab, s *stand) {
	t, before := w.t, s.stored(lettersTopic)
	w.group("loyalty")
	w.until("the event that fails is shown", func() bool { return len(w.rows("Failing events")) == 1 })
	row := w.rows("Failing events")[0]
	require.Equal(t, "the customer has no account yet", row["Error"])
	w.click(row["Event"])
	require.Contains(t, w.text("main"), row["Position"])
	w.group("loyalty")
	w.click("Move to dead letters…")
	require.Contains(t, w.text("#event"), row["Event"])
	require.Contains(t, w.text("#ask"), lettersTopic)
	w.fill("confirm", "why", "the account comes tomorrow")
	w.click("Move to dead letters")
	w.result("group loyalty will not get it again")
	require.Equal(t, before+1, s.stored(lettersTopic))
	w.group("loyalty")
	require.Equal(t, "The group will not get it again.", w.rows("Failing events")[0]["Change"])
	w.open("?q=loyalty")
	w.until("the group has settled all", func() bool { return w.row("loyalty")["Status"] == "ok" })

	const left = "shop.left"
	require.NoError(t, s.bus.Publish(t.Context(), left, &eventbus.Event{}))
	w.open("")
	w.until("the topic is listed", func() bool { return strings.Contains(w.text("#overview"), left) })
	w.click(left)
	w.click("Delete the topic…")
	w.click("Delete")
	w.result("topic " + left + " is deleted")
	w.open("")
	w.until("the topic is gone", func() bool { return !strings.Contains(w.text("#overview"), left) })
}

// lettersAreMended redrives, edits and discards the dead letters of the shop, when billing works again.
func lettersAreMended(w *tab, s *stand) {
	t := w.t
	s.mended.Store(true)
	class := func(name string) {
		w.open("letters?topic=" + lettersTopic)
		w.until("the letters are counted", func() bool { return len(w.rows("Classes")) > 0 })
		for _, row := range w.rows("Classes") {
			if row["Error class"] == name {
				w.click(row["Dead letters"])
				return
			}
		}
		require.Fail(t, "there is no class "+name)
	}
	stored := func() int { return s.stored(lettersTopic) }
	all := stored()

	class("card-declined")
	w.click(w.rows("Events")[0]["Position"])
	w.click("Redrive now")
	w.result("1 dead letter redriven")
	require.Equal(t, all-1, stored())

	class("card-declined")
	w.click(w.rows("Events")[0]["Position"])
	w.click("Edit and redrive…")
	w.fill("edit", "payload", `{"order":32,"note":"<b>by voucher</b>"}`)
	w.click("Redrive the edited event")
	w.result("1 dead letter redriven")
	w.until("billing has the edited event", func() bool {
		found := false
		s.charged.Range(func(_, payload any) bool {
			found = found || payload == `{"order":32,"note":"<b>by voucher</b>"}`
			return !found
		})
		return found
	})

	class("panic")
	panics := len(w.rows("Events"))
	require.Contains(t, w.text("#chosen"), "error class panic")
	w.press("discard")
	require.Equal(t, fmt.Sprint(panics), w.text("#found"))
	w.click("Cancel")
	require.Equal(t, all-2, stored(), "nothing was changed yet")
	w.press("discard")
	w.fill("confirm", "rate", fmt.Sprint(max(panics/3, 1))) // it ends while the page is open
	w.click("Discard")
	w.result(fmt.Sprintf("%d dead letters discarded", panics))
	require.Equal(t, all-2-panics, stored())

	w.open("letters?" + url.Values{"topic": {lettersTopic}, "type": {"order.placed"}}.Encode())
	w.click("Redrive the matching dead letters…")
	require.Equal(t, fmt.Sprint(all-2-panics), w.text("#found"))
	w.fill("confirm", "rate", "1")
	w.click("Redrive")
	w.until("the progress is shown", func() bool { return w.text("#word") == "running" && w.text("#done") != "0" })
	w.click("Stop")
	w.result("stopped by ann")
	require.Positive(t, stored(), "the rest stays")
	w.open("jobs")
	require.Contains(t, w.text("main"), "Redrive")
}
