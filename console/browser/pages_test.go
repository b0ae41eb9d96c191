package browser_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/console"
)

// ordersAtFirst are the orders of a shop, four of which of 25 become dead letters.
const (
	ordersAtFirst = 50
	lettersOfThem = 8
)

// A stand is a shop on a backend with a console.
type stand struct {
	*shop
	kind   kind
	broker broker // nil: the backend is no server
	site   *site
}

func newStand(t *testing.T, k kind, pace time.Duration) *stand {
	t.Helper()
	binary(t)
	b, server := k.open(t)
	s := &stand{kind: k, broker: server, shop: newShop(t, b, pace), site: serve(t, console.Handler(b, writable()))}
	s.stock()
	s.order(ordersAtFirst)
	s.settled(lettersOfThem)
	return s
}

// onEach runs a test with a shop on each kind of backend.
func onEach(t *testing.T, test func(t *testing.T, s *stand)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, newStand(t, k, 500*time.Millisecond))
		})
	}
}

// row returns the row for one of the groups of orders, or nil if there is none.
func (w *tab) row(group string) map[string]string {
	w.t.Helper()
	for _, row := range w.rows("Groups") {
		if row["Group"] == group && row["Topic"] == ordersTopic {
			return row
		}
	}
	return nil
}

// An operator sees each group in its state, finds the events, and reads why some have failed.
// The numbers change while the page is open, and an outage is shown and disappears again, all
// without a reload.
func TestOnEachBackend(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *stand) {
		w := newTab(t, s.site.origin())
		w.desktop()
		groupsAreTold(w, s)
		eventsAreListed(w)
		lettersAreExplained(w, s)
		stepsAndPlansAreShown(w)
		figuresAreLive(w, s)
		groupsAreChanged(w, s)
		eventsAreTakenAway(w, s)
		lettersAreMended(w, s)
		w.quiet()
		if s.broker != nil {
			anOutageIsTold(w, s)
		}
	})
}

// No broker has an influence on how payloads look, on pages without scripts, and on a page whose server ends.
func TestWhatNoBrokerChanges(t *testing.T) {
	t.Parallel()
	s := newStand(t, kinds[0], 500*time.Millisecond)
	w := newTab(t, s.site.origin())
	w.desktop()
	w.open("")
	w.until("the groups are listed", func() bool { return strings.HasPrefix(w.row("audit")["Status"], "paused") })
	w.open("letters?topic=" + lettersTopic)
	w.until("the letters are counted", func() bool { return len(w.rows("Classes")) > 0 })
	payloadsAreShown(w)
	readsWithoutScript(t, s)
	theConsoleIsAway(w, s)
}

// inMemory reports whether the stand tests the variants that no broker has an influence on.
func (s *stand) inMemory() bool { return s.kind.name == kinds[0].name }

func groupsAreTold(w *tab, s *stand) {
	t := w.t
	w.open("")
	want := map[string]string{"billing": "ok", "loyalty": "behind", "shipping": "behind", "mail": "stuck", "audit": "paused", "reports": "no members"}
	if !s.kind.members {
		want["reports"], want["loyalty"] = "stuck", "stuck" // nobody knows why they do not move
	}
	w.until("each group has its word", func() bool {
		for group, word := range want {
			if !strings.HasPrefix(w.row(group)["Status"], word) {
				return false
			}
		}
		return true
	})
	require.Contains(t, w.text("#state"), "Updated 20")
	rows := map[string]map[string]string{}
	for _, row := range w.rows("Groups") {
		rows[row["Group"]] = row
	}
	require.Equal(t, parcelsTopic, rows["tracking"]["Topic"])
	require.Equal(t, "ok", rows["tracking"]["Status"])
	require.Equal(t, strconv.Itoa(ordersAtFirst), rows["reports"]["Lag"])
	require.Equal(t, strconv.Itoa(lettersOfThem), rows["billing"]["Dead letters"])
	if s.kind.members {
		require.Equal(t, "0", rows["reports"]["Members"])
		require.Equal(t, "1", rows["billing"]["Members"])
		require.Equal(t, "1", rows["loyalty"]["Delayed"])
		require.Equal(t, "1", rows["mail"]["In flight"])
	} else {
		require.Equal(t, "unknown", rows["billing"]["Members"])
	}
	require.Contains(t, w.rows("Dead-letter topics"), map[string]string{"Topic": lettersTopic, "Dead letters": "8", "Classes": "3"})
	require.Contains(t, w.text(".names"), productsTopic)

	w.click("1 paused")
	require.Equal(t, "audit", w.rows("Groups")[0]["Group"])
	w.click("audit")
	require.Contains(t, w.text("main"), "Paused since 20")
	require.Contains(t, w.text("main"), "by ann, until somebody resumes it: the ledger moves to its new disk")
	w.open("group?topic=" + parcelsTopic + "&name=tracking")
	require.Len(t, w.rows("Partitions"), 4)
	w.open("group?topic=" + ordersTopic + "&name=mail")
	require.Contains(t, w.text("main"), "stuck The oldest event has been waiting for long")
	var members []map[string]string
	w.until("a heartbeat shows the run", func() bool {
		members = w.rows("Members that announce themselves")
		return len(members) == 1 && members[0]["Running"] == "1 of 1"
	})
	require.Equal(t, "v2.7.1", members[0]["Version"])
	require.True(t, eval[bool](w, `(() => { const d = document.querySelector("main details"); d.open = true; return d.querySelector("summary").innerText === "Settings in effect"; })()`))
	require.Contains(t, w.rows("Settings that all members share"), map[string]string{"Setting": "MaxInFlight", "Value": "1"})
	w.click("Processes")
	processes := w.rows("Processes that announce themselves")
	require.Len(t, processes, 1)
	require.Contains(t, processes[0]["Groups"], "mail of "+ordersTopic)
}

func payloadsAreShown(w *tab) {
	t := w.t
	w.open("topic?name=" + productsTopic)
	shown := w.rows("Events of " + productsTopic)
	require.Len(t, shown, 4)
	for id, payload := range map[string]string{
		"as-json":   "{ \"name\": \"green tea\", \"price\": { \"cents\": 890 } }",
		"as-text":   "Green tea from Uji, first flush.",
		"as-binary": "00000000 89 50 4e 47 0d 0a 1a 0a 00 00 00 0d 49 48 44 52 |.PNG........IHDR|",
		"empty":     "",
	} {
		w.open("topic?name=" + productsTopic + "&id=" + id)
		require.Contains(t, w.text("main"), "1 event found among 4 events")
		w.click(w.rows("Events of")[0]["Position"])
		require.Equal(t, payload, w.text("pre"), id)
		require.Contains(t, w.text("dl"), "ID "+id)
	}
	w.open("topic?name=" + productsTopic + "&id=as-json")
	w.click(w.rows("Events of")[0]["Position"])
	w.click("hex")
	require.Contains(t, w.text("pre"), "00000000 7b 22 6e 61")
	require.Equal(t, "hex", w.text("[aria-current]"))
}

func eventsAreListed(w *tab) {
	t := w.t
	w.open("topic?name=" + ordersTopic)
	require.Len(t, w.rows("Events of "+ordersTopic), 25)
	w.open("topic?name=" + ordersTopic + "&order=oldest&key=customer-ada")
	found := w.rows("Events of " + ordersTopic)
	require.Len(t, found, 8)
	for _, row := range found {
		require.Equal(t, "customer-ada", row["Key"])
	}
	w.open("topic?name=" + parcelsTopic + "&partition=2")
	for _, row := range w.rows("Events of") {
		require.Equal(t, "parcel.sent", row["Type"])
	}
	require.Contains(t, w.text("nav[aria-label=Partitions]"), "0 1 2 3")
}

func lettersAreExplained(w *tab, s *stand) {
	t := w.t
	w.open("letters?topic=" + lettersTopic)
	w.until("the letters are counted", func() bool { return strings.Contains(w.text("#classes"), "8 dead letters") })
	classes := map[string]map[string]string{}
	for _, row := range w.rows("Classes of dead letters") {
		classes[row["Error class"]] = row
	}
	require.Len(t, classes, 3)
	require.Equal(t, "4", classes["bank-silent"]["Dead letters"])
	require.Equal(t, "exhausted", classes["bank-silent"]["Reason"])
	require.Equal(t, "permanent", classes["card-declined"]["Reason"])
	require.Equal(t, "2", classes["panic"]["Dead letters"])
	require.Contains(t, classes["panic"]["Sample error"], "assignment to entry in nil map")

	w.click("4")
	letters := w.rows("Events of " + lettersTopic)
	require.Len(t, letters, 4)
	w.click(letters[0]["Position"])
	require.Contains(t, w.text("h1"), "Dead letter of "+lettersTopic)
	require.Contains(t, w.text("dl"), "no answer from https://bank.example/charge within 5s")
	require.Contains(t, w.text("dl"), "Error class bank-silent")
	require.Contains(t, w.text("pre"), `"currency": "EUR"`)

	w.open("letters?topic=" + lettersTopic)
	for _, row := range w.rows("Classes of dead letters") {
		if row["Error class"] == "panic" {
			require.Equal(t, "2", row["Dead letters"])
		}
	}
}

// stepsAndPlansAreShown looks at retries, owners, lifecycle records and schedules.
func stepsAndPlansAreShown(w *tab) {
	const error = "the customer has no account yet"
	w.open("group?topic=" + ordersTopic + "&name=loyalty")
	w.until("the retry is shown", func() bool {
		rows := w.rows("Events waiting for another attempt")
		return len(rows) == 1 && rows[0]["Error"] == error
	})
	w.open("lifecycle?topic=" + ordersTopic + "&group=loyalty")
	w.until("the records are shown", func() bool {
		rows := w.rows("Lifecycle records") // the newest ones, so that the retry may be gone
		return len(rows) > 0 && rows[0]["Program"] == "checkout"
	})
	w.open("group?topic=" + parcelsTopic + "&name=tracking")
	w.until("the owner is shown", func() bool {
		rows := w.rows("Members and their partitions")
		return len(rows) == 1 && rows[0]["Owns"] == "4"
	})
	w.open("schedule?topic=" + productsTopic)
	w.until("the plan is shown", func() bool {
		entries, next := w.rows("Recurring events"), w.rows("Scheduled events")
		return len(entries) == 1 && entries[0]["ID"] == "inventory" && entries[0]["Schedule"] == "0 6 * * *" && entries[0]["Zone"] == "Europe/Berlin" &&
			len(next) > 0 && next[0]["ID"] == "price-rise"
	})
}

// figuresAreLive publishes orders, and the page shows them. The link that has the focus keeps
// it, even if other rows have the same link.
func figuresAreLive(w *tab, s *stand) {
	t := w.t
	w.open("?q=" + ordersTopic)
	require.Equal(t, strconv.Itoa(ordersAtFirst), w.row("reports")["Lag"])
	columns := []string{"Topic", "Group"}
	if !s.inMemory() {
		columns = columns[1:]
	}
	for _, column := range columns {
		eval[any](w, fmt.Sprintf(`window.same = true; [...document.querySelectorAll("tbody tr")].find(r => r.innerText.includes("reports")).querySelector("[data-label=%s] a").focus()`, column))
		s.order(50 / len(columns))
		s.settled(lettersOfThem + 4*(s.orders-ordersAtFirst)/25)
		w.until("the new orders are shown", func() bool { return w.row("reports")["Lag"] == strconv.Itoa(s.orders) })
		require.True(t, eval[bool](w, "window.same"), "the page was not loaded again")
		require.Equal(t, "reports", eval[string](w, `document.activeElement.closest("tr")?.querySelector("th").innerText`), "the row with the focus")
		require.Equal(t, column, eval[string](w, `document.activeElement.closest("td, th").dataset.label`))
	}
}

// readsWithoutScript reads all pages in a browser that runs no script.
func readsWithoutScript(t *testing.T, s *stand) {
	w := newTab(t, s.site.origin())
	w.scripts(false)
	w.open("")
	require.Contains(t, w.row("audit")["Status"], "paused until ")
	w.click("billing")
	require.Contains(t, w.text("h1"), "billing")
	w.click(ordersTopic)
	require.Len(t, w.rows("Events of"), 25)
	w.click("Oldest first")
	w.click(w.rows("Events of")[0]["Position"])
	require.Contains(t, w.text("pre"), `"order": 0`)
	w.open("letters?topic=" + lettersTopic)
	require.NotEmpty(t, w.rows("Classes"))
	w.submit("id", "nothing")
	w.until("a form is sent", func() bool { return strings.Contains(w.text("main"), "0 events found") })
	w.quiet()
}

// anOutageIsTold kills the broker while a page is open, and starts it again.
func anOutageIsTold(w *tab, s *stand) {
	w.open("?q=audit")
	eval[bool](w, "window.same = true")
	before := w.row("audit")["Lag"]
	s.broker.Kill()
	w.until("the outage is shown", func() bool { return strings.Contains(w.text("#state .outage"), "Last updated 20") })
	require.Equal(w.t, before, w.row("audit")["Lag"], "the last numbers stay")
	s.broker.Run()
	w.until("the broker is back", func() bool {
		return w.text("#state .outage") == "" && strings.HasPrefix(w.text("#state"), "Updated 20")
	})
	s.order(1)
	w.until("the numbers change again", func() bool { return w.row("audit")["Lag"] > before })
	require.True(w.t, eval[bool](w, "window.same"), "the page was not loaded again")
	w.quiet()
}

// theConsoleIsAway ends the server of the pages while one is open, and starts it again.
func theConsoleIsAway(w *tab, s *stand) {
	w.expect("log: error network: Failed to load resource: net::ERR_CONNECTION")
	w.open("?q=audit")
	eval[bool](w, "window.same = true")
	s.site.end()
	w.until("the page says that it is alone", func() bool { return w.text("#state") == "The console does not respond. This page is out of date." })
	s.site.run()
	w.until("the page updates again", func() bool { return strings.HasPrefix(w.text("#state"), "Updated 20") })
	require.True(w.t, eval[bool](w, "window.same"), "the page was not loaded again")
	require.NotEmpty(w.t, w.quiet())
}
