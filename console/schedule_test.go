package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
)

// openBus returns a bus on b that leaves b open.
func openBus(t testing.TB, b backend.Backend, o eventbus.Options) *eventbus.Bus {
	t.Helper()
	o.Service = "test"
	bus, err := eventbus.New(stays{b}, o)
	require.NoError(t, err)
	return bus
}

// A stays is a backend that a bus does not close.
type stays struct{ backend.Backend }

func (stays) Close() error { return nil }

func (s stays) Unwrap() backend.Backend { return s.Backend }

// end shuts a bus down.
func end(t testing.TB, bus *eventbus.Bus) {
	t.Helper()
	require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
}

// openMover returns a bus on b that publishes the scheduled events of a topic, until it is shut down.
func openMover(t testing.TB, b backend.Backend, topic string) *eventbus.Bus {
	t.Helper()
	bus := openBus(t, b, eventbus.Options{})
	go func() {
		if err := bus.RunSchedule(t.Context(), topic); err != nil {
			t.Error(err)
		}
	}()
	return bus
}

// figure returns the text beside a label of a list of figures.
func (p page) figure(label string) string {
	for i, e := range p.elements {
		if e.name == "dt" && strings.TrimSpace(e.text) == label {
			return strings.TrimSpace(p.elements[i+1].text)
		}
	}
	p.t.Fatalf("there is no figure %q", label)
	return ""
}

// scheduleEvents schedules events with the numbers from first up to n, each an hour after the
// one before.
func scheduleEvents(t testing.TB, bus *eventbus.Bus, topic string, first, n int) {
	t.Helper()
	for i := first; i < n; i++ {
		require.NoError(t, bus.PublishIn(t.Context(), topic, time.Duration(n-i)*time.Hour, &eventbus.Event{
			ID: fmt.Sprint("e-", i), Type: "payment.due", Key: fmt.Sprint("k-", i%3), Payload: []byte(`{"n":1}`),
		}))
	}
}

// The events that wait are shown in the order of their times, without replaced, cancelled and published ones.
func TestSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		bus := openMover(t, m, "reminders")
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("schedule?topic=reminders").text, "No events of this topic are scheduled.")

		scheduleEvents(t, bus, "reminders", 0, 30)
		require.NoError(t, bus.PublishIn(t.Context(), "reminders", 20*time.Minute, &eventbus.Event{ID: "e-0", Type: "earlier"}))
		gone, err := bus.CancelScheduled(t.Context(), "reminders", "e-28")
		require.NoError(t, err)
		require.Equal(t, []bool{true}, gone)
		time.Sleep(12 * time.Second) // topics are listed each ten
		at := v.page("").link("Schedule of reminders")
		p := v.page(at)
		require.Equal(t, "29", p.figure("Waiting events"))
		require.Equal(t, "0", p.figure("Overdue"))
		require.Equal(t, "1", p.figure("Processes that can publish them"))
		require.Equal(t, "1", p.figure("Publishing now"))
		rows := p.cells("Scheduled events")
		require.Len(t, rows, 25)
		for i, id := range []string{"e-0", "e-29", "e-27", "e-26"} {
			require.Equal(t, id, rows[i]["ID"])
		}
		require.Equal(t, "payment.due", rows[1]["Type"])
		require.Equal(t, "k-2", rows[1]["Key"])
		require.Equal(t, "7 B", rows[1]["Size"])
		require.Equal(t, `{"n":1}`, rows[1]["Payload"])
		due, err := time.Parse("2006-01-02 15:04:05.000 UTC", rows[0]["Due"])
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(20*time.Minute-12*time.Second), due, time.Second)
		one := v.page(p.link(rows[1]["Due"]))
		require.Contains(t, one.text, "ID e-29")
		require.Contains(t, one.text, `{ "n": 1 }`)

		time.Sleep(90 * time.Minute) // e-0 and e-29 are published
		p = v.page(at)
		require.Equal(t, "27", p.figure("Waiting events"))
		require.Equal(t, "e-27", p.cells("Scheduled events")[0]["ID"])
		end(t, bus)
		time.Sleep(6 * time.Hour)
		p = v.page(at)
		require.Equal(t, "27", p.figure("Waiting events"))
		require.Equal(t, "5", p.figure("Overdue"), "no process publishes them")
		require.Equal(t, "0", p.figure("Processes that can publish them"))
	})
}

// While somebody looks, requests read new records only, and see each decision.
func TestAScheduleIsFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		bus := openBus(t, m, eventbus.Options{})
		scheduleEvents(t, bus, "reminders", 0, 300)
		end(t, bus)
		v := visit(t, m, console.Options{})
		require.Equal(t, "300", v.page("schedule?topic=reminders").figure("Waiting events"))
		for range 20 { // for longer than an unread log is good for
			time.Sleep(10 * time.Second)
			m.events.Store(0)
			require.Equal(t, "300", v.page("schedule?topic=reminders").figure("Waiting events"))
			require.Zero(t, m.events.Load())
		}
		bus = openMover(t, m, "reminders")
		require.NoError(t, bus.PublishIn(t.Context(), "reminders", time.Minute, &eventbus.Event{ID: "soon"}))
		time.Sleep(10 * time.Second)
		p := v.page("schedule?topic=reminders")
		require.Equal(t, "301", p.figure("Waiting events"))
		require.Equal(t, "soon", p.cells("Scheduled events")[0]["ID"])
		for range 10 {
			time.Sleep(10 * time.Second)
			p = v.page("schedule?topic=reminders")
		}
		require.Equal(t, "300", p.figure("Waiting events"))
		require.NotEqual(t, "soon", p.cells("Scheduled events")[0]["ID"])
		end(t, bus)
	})
}

// A long log is read in steps, and a very long one in part. The page says so.
func TestALongSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		bus := openBus(t, m, eventbus.Options{})
		v := visit(t, m, console.Options{})
		read := func() string {
			m.events.Store(0)
			p := v.page("schedule?topic=reminders")
			require.LessOrEqual(t, m.events.Load(), int64(5000+25))
			time.Sleep(3 * time.Second)
			return p.figure("Waiting events") + strings.Repeat(" partly", strings.Count(p.text, "Other events may be due earlier"))
		}
		scheduleEvents(t, bus, "reminders", 0, 12_000)
		require.Equal(t, []string{"5\u202f000 or more partly", "10\u202f000 or more partly", "12\u202f000", "12\u202f000"}, []string{read(), read(), read(), read()})
		scheduleEvents(t, bus, "reminders", 12_000, 22_000)
		require.Equal(t, []string{"17\u202f000 or more partly", "20\u202f000 or more partly", "20\u202f000 or more partly"}, []string{read(), read(), read()})
		end(t, bus)
	})
}

func TestRecurring(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		bus := openMover(t, m, "reports")
		for _, r := range []eventbus.Recurring{
			{ID: "nightly", Cron: "0 3 * * *", Zone: "Europe/Berlin", Event: eventbus.Event{Type: "report.due", Key: "k"}},
			{ID: "often", Every: 30 * time.Second, Missed: eventbus.FireAll, MaxMissed: 7},
			{ID: "paused", Every: time.Hour},
		} {
			r.Topic = "reports"
			require.NoError(t, bus.Recur(t.Context(), r))
		}
		require.NoError(t, bus.PauseRecurring(t.Context(), "reports", "paused", true))
		began := time.Now()
		v := visit(t, m, console.Options{})
		time.Sleep(3 * time.Second)
		require.Equal(t, "unknown", v.page("schedule?topic=reports").cells("Recurring events")[1]["Last"], "nobody has looked")
		time.Sleep(42 * time.Second)
		p := v.page("schedule?topic=reports")
		rows := p.cells("Recurring events")
		require.Len(t, rows, 3)
		berlin, err := time.LoadLocation("Europe/Berlin")
		require.NoError(t, err)
		next := time.Date(began.In(berlin).Year(), began.In(berlin).Month(), began.In(berlin).Day(), 3, 0, 0, 0, berlin)
		if !next.After(began) {
			next = next.AddDate(0, 0, 1)
		}
		require.Equal(t, map[string]string{
			"ID": "nightly", "Schedule": "0 3 * * *", "Zone": "Europe/Berlin", "Next": next.UTC().Format("2006-01-02 15:04:05.000 UTC"), "Last": "unknown",
			"Missed times": "once", "Type": "report.due", "Key": "k",
		}, rows[0])
		require.Equal(t, "every 30s", rows[1]["Schedule"])
		require.Equal(t, "all, at most 7", rows[1]["Missed times"])
		last, err := time.Parse("2006-01-02 15:04:05.000 UTC", rows[1]["Last"])
		require.NoError(t, err)
		require.WithinDuration(t, began.Add(30*time.Second), last, time.Second)
		after, err := time.Parse("2006-01-02 15:04:05.000 UTC", rows[1]["Next"])
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, after.Sub(last))
		require.Equal(t, "paused", rows[2]["Next"])
		require.Equal(t, "yes", p.cells("Scheduled events")[0]["Recurring"])
		require.Contains(t, p.text, "The broker stores neither the last time")
		end(t, bus)
	})
}

// A secret of the events of a topic is not shown before they are published, nor in a partition.
func TestRedactOfScheduledEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		bus := openMover(t, m, "payments")
		secret := eventbus.Event{ID: "card-4111", Type: "card-4111", Key: "card-4111", Headers: eventbus.Headers{{Name: "card", Value: "4111"}}, Payload: []byte(`"4111"`)}
		require.NoError(t, bus.PublishIn(t.Context(), "payments", time.Hour, &secret))
		stored, err := eventbus.MessageOf("payments", &secret)
		require.NoError(t, err)
		stored.Topic = "payments.partition-0"
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{stored}))
		entry := secret
		entry.ID = ""
		require.NoError(t, bus.Recur(t.Context(), eventbus.Recurring{ID: "card-4111", Topic: "payments", Every: time.Hour, Event: entry}))
		time.Sleep(3 * time.Second)
		hide := func(topic string, e *eventbus.Event) {
			if topic == "payments" {
				e.ID, e.Type, e.Key, e.Headers, e.Payload = "hidden", "hidden", "hidden", nil, nil
			}
		}
		v := visit(t, m, console.Options{Redact: hide})
		seen := 0
		for _, at := range []string{"schedule?topic=payments", "topic?name=payments.later&order=oldest", "topic?name=payments.partition-0"} {
			p := v.page(at)
			require.NotContains(t, p.text, "4111", at)
			for _, a := range p.all("a") {
				if strings.HasPrefix(a.attrs["href"], "event?") {
					seen++
					require.NotContains(t, v.page(a.attrs["href"]).text, "4111")
				}
			}
		}
		require.Greater(t, seen, 4)
		require.Contains(t, visit(t, m, console.Options{}).page("schedule?topic=payments").text, "4111", "without Redact all is shown")
		end(t, bus)
	})
}

// A backend that cannot be read, an outage and a refusal are told.
func TestNoSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		code, body := visit(t, knowsLittle{}, console.Options{}).answer("schedule?topic=orders")
		require.Equal(t, http.StatusNotImplemented, code)
		require.Contains(t, parse(t, body).text, "This backend does not support that.")
		v := visit(t, m, console.Options{})
		v.page("")
		for err, want := range map[error]int{
			backend.ErrUnavailable: http.StatusServiceUnavailable, backend.ErrDenied: http.StatusForbidden, errors.ErrUnsupported: http.StatusNotImplemented, errors.New("a mistake"): http.StatusInternalServerError,
		} {
			m.fail(err)
			for _, at := range []string{"schedule?topic=orders", "lifecycle?topic=orders"} {
				code, body := v.answer(at)
				require.Equal(t, want, code, "%s: %v", at, err)
				require.Contains(t, parse(t, body).text, err.Error())
			}
		}
		m.fail(nil)
		code, _ = v.answer("schedule?topic=" + strings.Repeat("x", 180))
		require.Equal(t, http.StatusOK, code)
	})
}
