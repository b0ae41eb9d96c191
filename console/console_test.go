package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
	"github.com/seed41896749/eventbus/lifecycle"
)

// inBubble runs a test in a bubble. The goroutines of a handler must have ended five minutes later.
func inBubble(t *testing.T, test func(t *testing.T, m *meter)) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)
		test(t, newMeter(t))
	})
}

// shop is a backend with a little of all.
func shop(t testing.TB, m *meter) {
	attach(t, m, "orders", "audit")
	source := attach(t, m, "orders", "billing")
	numbered(t, m, "orders", 60)
	_, err := source.Receive(t.Context(), 2, 0)
	require.NoError(t, err)
	require.NoError(t, m.Pause(t.Context(), "orders", "audit", backend.Pause{By: "ann", Why: "the bank is closed"}))
	numbered(t, m, "logs", 1)
	for i := range 4 {
		bury(t, m, "orders.dlq", fmt.Sprint("e-", i), map[string]string{
			letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders", letter.Error: "no answer", letter.ErrorClass: []string{"timeout", ""}[min(i, 1)],
			letter.Stack: "main.go:1 | main.go:2", letter.Attempts: "5", letter.LastAttempt: time.Now().Format(time.RFC3339Nano),
		})
	}
	for i := range 3 {
		attach(t, m, partition.Topic("parts", i), "g")
		numbered(t, m, partition.Topic("parts", i), 2)
	}
	attach(t, m, partition.OwnersTopic("parts"), "g")
	bus := openBus(t, m, eventbus.Options{})
	scheduleScan(t, bus, "orders", 0, 3)
	require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "orders", Cron: "@daily"}))
	end(t, bus)
	note(t, m, lifecycle.Record{State: lifecycle.Failed, Group: "billing", ID: "e-0", Attempt: 1, Error: "no answer"}, lifecycle.Record{State: lifecycle.Retried, Group: "billing", ID: "e-0", Attempt: 1, DelayMicros: 1e9})
}

func TestOverview(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		p := visit(t, m, console.Options{}).page("")
		rows := p.cells("Groups")
		require.Len(t, rows, 3)
		require.Equal(t, map[string]string{
			"Topic": "orders", "Group": "audit", "Status": "paused until somebody resumes it, by ann: the bank is closed", "Lag": "60", "Last 15 minutes": "", "Oldest": "0s",
			"In flight": "0", "Delayed": "0", "Dead letters": "0", "Members": "1",
		}, rows[0], "a group that does not keep up is first")
		require.Equal(t, "billing", rows[1]["Group"])
		require.Equal(t, "58", rows[1]["Lag"])
		require.Equal(t, "2", rows[1]["In flight"])
		require.Equal(t, "4", rows[1]["Dead letters"])
		require.Equal(t, map[string]string{
			"Topic": "parts", "Group": "g", "Status": "ok", "Lag": "6", "Last 15 minutes": "", "Oldest": "0s",
			"In flight": "0", "Delayed": "0", "Dead letters": "0", "Members": "1",
		}, rows[2], "partitions are one topic")
		require.Equal(t, []map[string]string{{"Topic": "orders.dlq", "Dead letters": "4", "Classes": "2"}}, p.cells("Topics of dead letters"))
		require.NotEmpty(t, p.link("logs"), "a topic without a group is listed")
		require.Contains(t, p.all("svg")[0].attrs["aria-label"], "lag in the last 15 minutes: now 60")
	})
}

func TestTheOverviewIsFiltered(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		for query, want := range map[string][]string{
			"?q=BILL": {"billing"}, "?q=orders": {"audit", "billing"}, "?status=paused": {"audit"}, "?status=stuck": nil, "?q=a&status=ok": {"g"}, "?first=2": {"g"}, "?first=x": {"audit", "billing", "g"},
		} {
			var got []string
			for _, row := range v.page(query).cells("Groups") {
				got = append(got, row["Group"])
			}
			require.Equal(t, want, got, query)
		}
		require.Equal(t, "./?status=paused", v.page("").link("1 paused"))
	})
}

func TestTheOverviewHasPages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		for i := range 450 {
			attach(t, m, "orders", fmt.Sprintf("group%03d", i))
		}
		v := visit(t, m, console.Options{})
		seen := map[string]bool{}
		url, n := "", 0
		for ; n == 0 || url != ""; n++ {
			p := v.page(url)
			for _, row := range p.cells("Groups") {
				require.False(t, seen[row["Group"]])
				seen[row["Group"]] = true
			}
			url = strings.TrimPrefix(p.link("Further groups"), "./")
		}
		require.Len(t, seen, 450)
		require.Equal(t, 3, n)
	})
}

func TestGroupPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		p := v.page(v.page("").link("audit"))
		require.Contains(t, p.text, "by ann, until somebody resumes it: the bank is closed")
		require.Contains(t, p.text, "An operator has paused the group.")
		require.Len(t, v.page(v.page("").link("g")).cells("Partitions"), 3)
		code, body := v.answer("group?topic=orders&name=nobody")
		require.Equal(t, http.StatusNotFound, code)
		require.Contains(t, body, "There is no such group")
	})
}

func TestTopicPageOfPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		p := v.page("topic?name=parts")
		require.Len(t, p.cells("Events of parts.partition-0"), 2)
		require.Len(t, v.page(p.link("2")).cells("Events of parts.partition-2"), 2)
		require.NotEmpty(t, p.link("parts.partitions.owners"))
		found := v.page("topic?name=parts&id=e-1")
		for n := 0; found.link("Continue the search") != ""; n++ {
			require.Len(t, found.cells("Events of parts.partition-"+fmt.Sprint(n)), 1)
			found = v.page(found.link("Continue the search"))
		}
		require.Len(t, found.cells("Events of parts.partition-2"), 1, "the search goes through all partitions")
	})
}

func TestLettersPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		p := v.page(v.page("").link("orders.dlq"))
		require.Len(t, p.cells("Classes"), 2)
		require.Contains(t, p.text, "4 dead letters, counted 0s ago")
		for class, n := range map[string]int{"3": 3, "1": 1} { // one of them has no class of error
			of := v.page(p.link(class))
			require.Len(t, of.cells("Events"), n)
			require.Contains(t, of.text, "exhausted in billing: no answer")
		}
		of := v.page("letters?topic=orders.dlq&id=e-2")
		require.Len(t, of.cells("Events"), 1, "a letter is found by the id of its event")
		one := v.page(of.all("a")[linkIndex(of, "event?")].attrs["href"])
		for _, want := range []string{"Why it failed Error no answer", "Id of the event e-2", "Attempts 5", "main.go:1 main.go:2", "Payload, 12 B", `{ "id": "e-2" }`} {
			require.Contains(t, one.text, want)
		}
		require.NotContains(t, one.text, "eventbus-dead-", "the headers of a letter are shown once")
		require.Contains(t, v.page("letters?topic=orders.dlq&group=audit").text, "0 dead letters")
	})
}

// linkIndex returns the index of the first link that begins so.
func linkIndex(p page, begin string) int {
	for i, a := range p.all("a") {
		if strings.HasPrefix(a.attrs["href"], begin) {
			return i
		}
	}
	p.t.Fatalf("no link begins with %s", begin)
	return 0
}

// Every link of every page leads to a page, below any base path.
func TestEveryLinkLeadsToAPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		mux := http.NewServeMux()
		mux.Handle("/admin/bus/", http.StripPrefix("/admin/bus", console.Handler(m, console.Options{})))
		v := visitor{t, mux}
		open, seen := []string{"/admin/bus/"}, map[string]bool{}
		for len(open) > 0 {
			at := open[0]
			open = open[1:]
			if at, _, _ = strings.Cut(at, "#"); seen[at] {
				continue
			}
			seen[at] = true
			require.True(t, strings.HasPrefix(at, "/admin/bus/"), at)
			code, body := v.answer(at[1:])
			require.Equal(t, http.StatusOK, code, at)
			if strings.Contains(at, "/assets/") {
				continue
			}
			base, err := url.Parse(at)
			require.NoError(t, err)
			for _, e := range parse(t, body).elements {
				for _, name := range []string{"href", "src", "action"} {
					if to, ok := e.attrs[name]; ok && to != "data:," {
						next, err := base.Parse(to)
						require.NoError(t, err)
						open = append(open, next.String())
					}
				}
			}
		}
		require.Greater(t, len(seen), 80)
	})
}

// The broker goes away while pages are open.
func TestOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		event := v.page("topic?name=orders")
		require.NotContains(t, v.page("").text, "unavailable")
		m.fail(fmt.Errorf("dial tcp: %w", backend.ErrUnavailable))
		time.Sleep(10 * time.Second)

		p := v.page("")
		require.Regexp(t, `The figures are of 2\S+ \S+ UTC, \d+s ago: dial tcp: unavailable`, p.text)
		require.Len(t, p.cells("Groups"), 3, "the last figures stay")
		code, body := v.answer("topic?name=orders")
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Len(t, parse(t, body).cells("Groups"), 2)
		require.Contains(t, parse(t, body).text, "The broker does not answer.")
		code, _ = v.answer(event.all("a")[linkIndex(event, "event?")].attrs["href"])
		require.Equal(t, http.StatusServiceUnavailable, code)

		m.fail(nil)
		time.Sleep(10 * time.Second)
		require.NotContains(t, v.page("").text, "unavailable")
		require.Len(t, v.page("topic?name=orders").cells("Events"), 25)
	})
}

// The broker is away before the first figures.
func TestNoFiguresYet(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		m.fail(backend.ErrUnavailable)
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("").text, "No figures yet: unavailable")
		require.NotContains(t, v.page("").text, "There is no group")
		code, _ := v.answer("group?topic=orders&name=billing")
		require.Equal(t, http.StatusServiceUnavailable, code)
	})
}

// Ten browsers that look at all pages cost the broker as much as one.
func TestTenBrowsersCostAsMuchAsOne(t *testing.T) {
	cost := func(browsers int) (calls int64) {
		inBubble(t, func(t *testing.T, m *meter) {
			shop(t, m)
			for range 50 {
				numbered(t, m, "orders", 100)
				time.Sleep(time.Second)
			}
			v := visit(t, m, console.Options{})
			v.page("")
			var all sync.WaitGroup
			for range browsers {
				all.Go(func() {
					for range 30 { // each renews its pages every two seconds
						for _, url := range []string{"", "group?topic=orders&name=billing", "topic?name=orders", "topic?name=orders&key=key3", "letters?topic=orders.dlq", "schedule?topic=orders", "lifecycle?topic=orders", "processes", "group?topic=parts&name=g"} {
							code, _ := v.answer(url)
							if code != http.StatusOK {
								t.Errorf("%s: %d", url, code)
							}
						}
						time.Sleep(3100 * time.Millisecond)
					}
				})
			}
			all.Wait()
			calls = m.calls.Load()
		})
		return calls
	}
	one := cost(1)
	require.Greater(t, one, int64(500))
	require.Equal(t, one, cost(10))
}

// A request that renews the figures of a page reads no events.
func TestThePartsOfAPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 100)
		v := visit(t, m, console.Options{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/topic?name=orders", http.NoBody)
		r.Header.Set("Eventbus-Part", "figures")
		p := parse(t, v.ask(r).Body.String())
		require.Len(t, p.cells("Groups"), 1)
		require.Empty(t, p.cells("Events"))
		require.Zero(t, m.events.Load())
	})
}

func TestUnknownIsNotZero(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *meter) {
		p := visit(t, knowsLittle{}, console.Options{}).page("")
		require.Equal(t, "the lag is unknown", p.all("svg")[0].attrs["aria-label"])
		row := p.cells("Groups")[0]
		for _, figure := range []string{"Status", "Lag", "Oldest", "In flight", "Delayed", "Dead letters", "Members"} {
			require.Equal(t, "unknown", row[figure], figure)
		}
	})
}

func TestRedact(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		store(t, m, "orders", eventbus.Event{ID: "e-1", Headers: eventbus.Headers{{Name: "token", Value: "hunter2"}}, Payload: []byte(`{"card":"4111"}`)})
		bury(t, m, "orders.dlq", "e-1", map[string]string{letter.Reason: "permanent", letter.Error: "card 4111 refused", letter.Group: "billing", "token": "hunter2"})
		redact := func(topic string, e *eventbus.Event) {
			e.Payload = []byte("[hidden]")
			for i := range e.Headers {
				e.Headers[i].Value = strings.NewReplacer("hunter2", "[hidden]", "4111", "[hidden]").Replace(e.Headers[i].Value)
			}
		}
		for name, r := range map[string]func(string, *eventbus.Event){"it hides": redact, "it panics": func(string, *eventbus.Event) { panic("4111") }} {
			v := visit(t, m, console.Options{Redact: r})
			seen := 0
			for _, at := range []string{"", "topic?name=orders", "topic?name=orders&value=hunter2", "topic?name=orders&value=%5Bhidden%5D", "letters?topic=orders.dlq", "letters?topic=orders.dlq&group=billing", "topic?name=orders.dlq"} {
				p := v.page(at)
				require.NotContains(t, strings.ReplaceAll(p.text, "hunter2\"", ""), "4111", name)
				for _, a := range p.all("a") {
					if strings.HasPrefix(a.attrs["href"], "event?") {
						seen++
						_, body := v.answer(a.attrs["href"])
						require.NotContains(t, body, "4111", name)
						require.NotContains(t, body, "hunter2", name)
					}
				}
			}
			require.Empty(t, v.page("topic?name=orders&value=hunter2").cells("Events"), "a search tells no secret")
			require.Greater(t, seen, 1)
		}
		_, body := visit(t, m, console.Options{}).answer("topic?name=orders.dlq")
		require.Contains(t, body, "4111", "without Redact all is shown")
	})
}
