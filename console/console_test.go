package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
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
func inBubble(t *testing.T, test func(t *testing.T, m *countingBackend)) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)
		test(t, newCountingBackend(t))
	})
}

// shop is a backend with a little of all.
func shop(t testing.TB, m *countingBackend) {
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
	scheduleEvents(t, bus, "orders", 0, 3)
	require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "orders", Cron: "@daily"}))
	end(t, bus)
	note(t, m, lifecycle.Record{State: lifecycle.Failed, Group: "billing", ID: "e-0", Attempt: 1, Error: "no answer"}, lifecycle.Record{State: lifecycle.Retried, Group: "billing", ID: "e-0", Attempt: 1, DelayMicros: 1e9})
}

func TestTopicPageOfPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
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

func TestRedact(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
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

// A refused change leads back to the page of its form.
func TestRefusalsLeadBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		refusing := change(t, m, console.Options{Allow: func(_ *http.Request, a console.Action) error {
			if a.DryRun {
				return nil
			}
			return errors.New("no")
		}})
		pause := func(h *operatorVisitor, why string) page {
			_, fields := h.open("group?topic=orders&name=billing").form("pause")
			fields.Set("why", why)
			fields.Set("until", "soon")
			if why != "" {
				fields.Set("until", "")
			}
			return parse(t, h.send(h.post(fields)).Body.String())
		}
		for _, p := range []page{pause(h, ""), pause(refusing, "a test")} {
			require.Contains(t, p.text, "Nothing was changed")
			require.Equal(t, "group?name=billing&topic=orders", p.link("Back"))
		}
		_, body := h.answer("confirm?verb=redrive&topic=orders.dlq&type=a&rate=fast")
		require.Equal(t, "letters?"+url.Values{"topic": {"orders.dlq"}, "type": {"a"}, "from": {""}}.Encode(), parse(t, body).link("Back"))
		_, body = h.answer("topic?name=nowhere")
		require.Empty(t, parse(t, body).link("Back"))
	})
}

// A topic without a group says what becomes of its events.
func TestTopicWithoutAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("topic?name=logs").text, "No group reads this topic. Its events stay until a limit of the topic removes them.")
		require.NotContains(t, v.page("topic?name=orders").text, "No group reads this topic")
	})
}

// Pages lead to the things that they name, and the navigation marks the page.
func TestLinks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		letter := h.letter("orders.dlq", 0)
		require.Equal(t, "group?name=billing&topic=orders", letter.link("billing"))
		require.Equal(t, "topic?name=orders", letter.link("orders"))
		for at, text := range map[string]string{"": "eventbus", "processes": "Processes", "jobs": "Changes", "topic?name=orders": ""} {
			marked := ""
			for _, a := range h.open(at).all("a") {
				if a.attrs["aria-current"] == "page" {
					marked += strings.TrimSpace(a.text)
				}
			}
			require.Equal(t, text, marked, at)
		}
	})
}
