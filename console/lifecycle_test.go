package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

// note stores lifecycle records about events of orders.
func note(t testing.TB, b backend.Backend, records ...lifecycle.Record) {
	t.Helper()
	for i := range records {
		r := records[i]
		r.Topic, r.Time = "orders", time.Now()
		payload, err := json.Marshal(r)
		require.NoError(t, err)
		store(t, b, "orders.lifecycle", eventbus.Event{Type: lifecycle.Type, Source: "worker-7", ContentType: "application/json", Payload: payload})
	}
}

// The steps of real events are shown, the newest first. New ones come with the live part of the page.
func TestLifecycle(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("lifecycle?topic=orders").text, "There are no records for events of this topic. Programs write them with package lifecycle")

		records := lifecycle.New(lifecycle.Options{Source: "shop"})
		bus := openBus(t, m, eventbus.Options{Observer: observer.Join(records.Observer())})
		require.NoError(t, records.Start(t.Context(), m))
		handler := func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "bad" {
				return errors.New("the bank does not answer")
			}
			return nil
		}
		for _, group := range []string{"audit", "billing"} {
			h := handler
			if group == "audit" {
				h = func(context.Context, *eventbus.Delivery) error { return nil }
			}
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: group, Retry: eventbus.Retry{MaxAttempts: 5, Initial: time.Hour, Max: time.Hour}}, h)
			require.NoError(t, err)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "good", Type: "order.placed"}, &eventbus.Event{ID: "bad", Type: "order.placed"}))
		time.Sleep(12 * time.Second)

		p := v.page(v.page("").link("Lifecycle of orders"))
		rows := p.cells("Lifecycle records")
		require.Len(t, rows, 9, "four active, three completed, failed and retried")
		require.Contains(t, p.text, "9 records among the newest 9 records")
		p = v.page(p.link("billing"))
		rows = p.cells("Lifecycle records")
		require.Len(t, rows, 5)
		seen := map[string]map[string]string{}
		for _, row := range rows {
			require.Equal(t, "billing", row["Group"])
			require.Equal(t, "shop", row["Program"])
			require.Equal(t, "order.placed", row["Type"])
			seen[row["Event"]+" "+row["State"]] = row
		}
		require.Equal(t, "the bank does not answer", seen["bad failed"]["Error or reason"])
		require.Equal(t, "1", seen["bad retried"]["Attempt"])
		require.NotEqual(t, "–", seen["bad retried"]["Next attempt"])
		require.Contains(t, seen, "good completed")
		require.Equal(t, []string{"bad"}, v.page(p.link("bad")).ids(), "a record leads to its event")

		group := v.page("group?topic=orders&name=billing")
		waiting := group.cells("Events waiting for another attempt")
		require.Len(t, waiting, 1)
		require.Equal(t, "bad", waiting[0]["Event"])
		require.Equal(t, "1 of 5", waiting[0]["Attempts"])
		require.Equal(t, "the bank does not answer", waiting[0]["Error"])
		due, err := time.Parse("2006-01-02 15:04:05.000 UTC", waiting[0]["Next attempt"])
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), due, 15*time.Minute)
		require.Contains(t, group.text, "1 delayed, according to the backend.")
		require.Contains(t, v.page("group?topic=orders&name=audit").text, "The newest 9 records of the topic show no waiting event.")

		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "new"}))
		time.Sleep(3 * time.Second)
		require.Contains(t, v.page("lifecycle?topic=orders&group=billing").cells("Lifecycle records")[0]["Event"], "new")
		end(t, bus)
		require.NoError(t, records.Close(t.Context()))
	})
}

// Without records the page says which facts about retries are unknown.
func TestRetriesWithoutRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		v := visit(t, m, console.Options{})
		v.page("")
		m.reads.Store(0)
		text := v.page("group?topic=orders&name=billing").text
		require.Contains(t, text, "0 delayed, according to the backend. Which events are waiting, until when and why is unknown, because the topic has no lifecycle records.")
		require.Zero(t, m.reads.Load(), "nobody looks for records of which the figures do not know")
		text = visit(t, knowsLittle{}, console.Options{}).page("group?topic=orders&name=billing").text
		require.Contains(t, text, "unknown delayed, according to the backend.")
	})
}

// An event waits until a record says otherwise. The record of the failed run may come late.
func TestWhichEventsWait(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "g")
		retried := func(id string, after time.Duration) lifecycle.Record {
			return lifecycle.Record{State: lifecycle.Retried, Group: "g", ID: id, Attempt: 1, DelayMicros: after.Microseconds(), Error: "e"}
		}
		step := func(id string, s lifecycle.State) lifecycle.Record {
			return lifecycle.Record{State: s, Group: "g", ID: id, Attempt: 2}
		}
		other := step("second", lifecycle.Completed)
		other.Group = "another"
		note(t, m,
			retried("second", 2*time.Hour), other, retried("first", time.Hour), step("first", lifecycle.Failed), retried("done", time.Hour), step("done", lifecycle.Active),
			retried("dead", time.Hour), step("dead", lifecycle.DeadLettered), retried("later", time.Hour), retried("later", 4*time.Hour),
			lifecycle.Record{State: lifecycle.Snoozed, Group: "g", ID: "third", DelayMicros: (3 * time.Hour).Microseconds()},
		)
		rows := visit(t, m, console.Options{}).page("group?topic=orders&name=g").cells("Events waiting for")
		var ids []string
		for _, row := range rows {
			ids = append(ids, row["Event"])
		}
		require.Equal(t, []string{"first", "second", "third", "later"}, ids)
		require.Equal(t, "snoozed by the handler", rows[2]["Error"])
	})
}

// A page looks at the newest records only, and reads each once while somebody looks.
func TestRecordsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		for i := range 3000 {
			note(t, m, lifecycle.Record{State: lifecycle.Completed, Group: fmt.Sprint("g", i%2), ID: fmt.Sprint("e-", i)})
			time.Sleep(100 * time.Millisecond)
		}
		v := visit(t, m, console.Options{})
		v.page("")
		m.events.Store(0)
		rows := v.page("lifecycle?topic=orders").cells("Lifecycle records")
		require.Len(t, rows, 50)
		require.Equal(t, "e-2999", rows[0]["Event"])
		require.LessOrEqual(t, m.events.Load(), int64(2*5000))
		for range 10 {
			time.Sleep(3 * time.Second)
			note(t, m, lifecycle.Record{State: lifecycle.Completed, Group: "g1", ID: "new"})
			m.events.Store(0)
			rows = v.page("lifecycle?topic=orders&group=g1").cells("Lifecycle records")
			require.Len(t, rows, 50)
			require.Equal(t, "new", rows[0]["Event"])
			require.Equal(t, int64(1), m.events.Load())
		}
		require.NoError(t, m.DeleteTopic(t.Context(), "orders.lifecycle"))
		time.Sleep(3 * time.Second)
		require.Contains(t, v.page("lifecycle?topic=orders").text, "There are no records")
		note(t, m, lifecycle.Record{State: lifecycle.Completed, Group: "g1", ID: "again"})
		time.Sleep(3 * time.Second)
		require.Len(t, v.page("lifecycle?topic=orders").cells("Lifecycle records"), 1)
	})
}

// Damaged and hidden records take a line, other events of the topic take none.
func TestUnclearRecords(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		store(t, m, "orders.lifecycle", eventbus.Event{Type: lifecycle.Type, Payload: []byte("{")})
		store(t, m, "orders.lifecycle", eventbus.Event{Type: "mine", Payload: []byte("{}")})
		note(t, m, lifecycle.Record{State: lifecycle.Failed, Group: "g", ID: "e-1", Error: "card 4111"}, lifecycle.Record{
			State: lifecycle.State(strings.Repeat("s", 5000)), Group: strings.Repeat("g", 5000), ID: strings.Repeat("i", 5000), Error: strings.Repeat("e", 500_000), Attempt: -3, DelayMicros: -1 << 62, TookMicros: -5,
		})
		p := visit(t, m, console.Options{}).page("lifecycle?topic=orders")
		rows := p.cells("Lifecycle records")
		require.Len(t, rows, 3)
		require.Equal(t, "The record cannot be read: it is damaged or hidden.", rows[2]["Error or reason"])
		require.Equal(t, "unknown", rows[2]["State"])
		require.Equal(t, "card 4111", rows[1]["Error or reason"])
		require.Less(t, len(p.text), 20_000)
		for _, a := range p.all("a") {
			require.Less(t, len(a.attrs["href"]), 2000)
		}
		for name, redact := range map[string]func(string, *eventbus.Event){
			"it hides": func(topic string, e *eventbus.Event) {
				require.Equal(t, "orders.lifecycle", topic)
				e.Payload = []byte("(hidden)")
			},
			"it panics": func(string, *eventbus.Event) { panic("4111") },
		} {
			text := visit(t, m, console.Options{Redact: redact}).page("lifecycle?topic=orders").text
			require.NotContains(t, text, "4111", name)
			require.Equal(t, 3, strings.Count(text, "it is damaged or hidden"), name)
		}
	})
}

// The knowledge about topics is bounded, and forgotten when nobody looks.
func TestManyTopicsAreLookedAt(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		v := visit(t, m, console.Options{})
		for round := range 2 {
			for i := range 30 {
				topic := fmt.Sprint("t", i)
				if round == 0 {
					bus := openBus(t, m, eventbus.Options{})
					require.NoError(t, bus.PublishIn(t.Context(), topic, time.Hour, &eventbus.Event{}))
					end(t, bus)
				}
				require.Equal(t, "1", v.page("schedule?topic="+url.QueryEscape(topic)).figure("Waiting events"))
			}
			time.Sleep(5 * time.Minute)
		}
	})
}
