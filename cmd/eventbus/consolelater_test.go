package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/lifecycle"
	"github.com/seed41896749/eventbus/observer"
)

// dataOf returns the figure of a page with this name.
func dataOf(page, name string) string {
	_, rest, _ := strings.Cut(page, "<dt>"+name+"</dt><dd>")
	text, _, _ := strings.Cut(rest, "</dd>")
	return text
}

// The console shows the scheduled and recurring events of each backend.
func TestServeSchedule(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var lines strings.Builder
		for i := range 40 {
			fmt.Fprintf(&lines, `{"id":"e-%d","type":"payment.due","key":"k-%d","data":{"n":%d}}`+"\n", i, i%3, i)
		}
		b.ok(lines.String(), "pub", "reminders", "--in", "2h")
		b.ok(`{"id":"first","data":1}`, "pub", "reminders", "--in", "1h")
		b.ok("", "schedule", "cancel", "reminders", "e-7")
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: unexpected(io.Discard)})
		require.NoError(t, err)
		defer bus.Shutdown(context.WithoutCancel(t.Context()))
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "nightly", Topic: "reminders", Cron: "0 3 * * *", Zone: "Europe/Berlin", Event: eventbus.Event{Type: "report.due"}}))

		v, r := b.serve()
		page := v.page("schedule?topic=reminders")
		require.Equal(t, "40", dataOf(page, "Events that wait"))
		require.Equal(t, "0", dataOf(page, "Of these overdue"))
		require.Equal(t, []string{"nightly", "first", "e-0", "e-1"}, cells(page, "Id")[:4])
		require.Len(t, cells(page, "Due"), 25)
		require.Equal(t, []string{"0 3 * * *"}, cells(page, "Schedule"))
		require.NotContains(t, []string{"never", "unknown", "paused"}, cells(page, "Next")[0])
		event := v.page(link(page, cells(page, "Due")[0]))
		require.Contains(t, event, `<dd class="long">first</dd>`)
		require.NotEmpty(t, link(v.page("topic?name=reminders.later"), cells(v.page("topic?name=reminders.later"), "Position")[0]))

		handled := make(chan string, 1)
		_, err = bus.Subscribe(t.Context(), "reminders", eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
			handled <- d.ID
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.PublishIn(t.Context(), "reminders", 100*time.Millisecond, &eventbus.Event{ID: "soon"}))
		require.Equal(t, "soon", <-handled)
		await(t, "a process publishes, and the entry has its event", func() bool {
			page = v.page("schedule?topic=reminders")
			return dataOf(page, "Events that wait") == "41" && !slices.Contains(cells(page, "Id"), "soon")
		})
		require.NotEqual(t, "0", dataOf(page, "Of these at work"), "a backend that cannot tell says unknown")
		require.Zero(t, r.end().code)
	})
}

// The console shows the steps of events, and when and why they are retried, on each backend.
func TestServeLifecycle(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		records := lifecycle.New(lifecycle.Options{Source: "shop"})
		bus, err := eventbus.New(sharedBackend{b.b}, eventbus.Options{Service: "test", Observer: observer.Join(unexpected(io.Discard), records.Observer())})
		require.NoError(t, err)
		defer bus.Shutdown(context.WithoutCancel(t.Context()))
		require.NoError(t, records.Start(t.Context(), b.b))
		defer records.Close(context.WithoutCancel(t.Context()))
		_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Retry: eventbus.Retry{MaxAttempts: 3, Initial: time.Hour, Max: time.Hour}}, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "bad" {
				return errors.New("no answer")
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "good", Key: "a"}, &eventbus.Event{ID: "bad", Key: "b"}))
		await(t, "all steps are stored", func() bool {
			ms, _ := backend.Read(t.Context(), b.b, lifecycle.Topic("orders"), backend.StartEarliest, 10)
			return len(ms) == 5
		})
		v, r := b.serve("--hide-payloads")
		page := v.page("lifecycle?topic=orders&group=billing")
		states := cells(page, "State")
		slices.Sort(states)
		require.Equal(t, []string{"active", "active", "completed", "failed", "retried"}, states)
		require.Contains(t, html.UnescapeString(page), "no answer", "a record has no payload, so it is not hidden")
		page = v.page("group?topic=orders&name=billing")
		require.Equal(t, []string{"bad"}, cells(page, "Event"))
		require.Equal(t, []string{"1 of 3"}, cells(page, "Attempts"))
		require.Equal(t, []string{"no answer"}, cells(page, "Error"))
		require.Equal(t, []string{"bad"}, cells(v.page(link(page, "bad")), "Id"))
		require.Zero(t, r.end().code)
	})
}

// The page of a trace is linked, and only at an address of the web.
func TestServeTraceURL(t *testing.T) {
	b := newBench(t)
	b.ok(`{"id":"e-1","headers":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}`, "pub", "orders")
	v, _ := b.serve("--trace-url", "https://tempo.example.com/trace/{trace_id}")
	page := v.page("topic?name=orders")
	event := v.page(link(page, cells(page, "Position")[0]))
	require.Equal(t, "https://tempo.example.com/trace/4bf92f3577b34da6a3ce929d0e0e4736", link(event, "4bf92f3577b34da6a3ce929d0e0e4736"))
	for want, address := range map[string]string{
		"serve: --trace-url does not begin with http:// or https://": "javascript:{trace_id}",
		"serve: --trace-url does not have {trace_id}":                "https://tempo.example.com/",
		"serve: --trace-url is empty":                                "",
	} {
		got := b.run("", "serve", "--trace-url", address)
		require.Equal(t, 1, got.code)
		require.Contains(t, got.stderr, want)
	}
}
