package console_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A long job shows its progress, and stops when somebody stops it. The letters that it has not
// reached stay.
func TestStop(t *testing.T) {
	for _, verb := range []string{"redrive", "discard"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *meter) {
				attach(t, m, "orders", "billing")
				letters(t, m, 300)
				var log recordTail
				h := change(t, m, console.Options{Logger: log.logger(), Who: func(*http.Request) string { return "ann" }})
				ask := h.submit(h.open("letters?topic=orders.dlq"), verb)
				p := h.submit(ask, "confirm", "rate", "10")
				require.Equal(t, "running", p.byID("word"))
				url := p.all("form")[0]
				require.Equal(t, "stop", url.attrs["id"])
				time.Sleep(10*time.Second + 500*time.Millisecond)
				list := h.open("letters?topic=orders.dlq").cells("Changes")
				require.Len(t, list, 1)
				require.Equal(t, "running", list[0]["State"])
				require.Equal(t, "ann", list[0]["Who"])
				require.Contains(t, []string{"100", "110", "120"}, list[0]["Done"])
				require.Equal(t, list, h.open("jobs").cells("Changes"))
				p = h.submit(p, "stop")
				require.Equal(t, "stopped by ann", p.byID("result"))
				require.False(t, p.has("stop"))
				done := h.open("jobs").cells("Changes")[0]["Done"]
				left := len(ids(t, m, "orders.dlq"))
				require.Equal(t, fmt.Sprint(300-left), done)
				time.Sleep(time.Minute)
				require.Len(t, ids(t, m, "orders.dlq"), left, "nothing goes on")
				require.Contains(t, log.String(), `msg="console: stop" who=ann action=stop topic=orders.dlq`)
				require.Contains(t, log.String(), `result="stopped by ann"`)
			})
		})
	}
}

// One job at a time changes the letters of a topic. Other topics, and single letters, do not wait.
func TestOneJobForATopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		bury(t, m, "logs.dlq", "y", map[string]string{letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders"})
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("letters?topic=orders.dlq"), "redrive")
		first := h.submit(ask, "confirm", "rate", "1")
		_, fields := ask.form("confirm")
		w := h.send(h.post(fields))
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), "a job of 192.0.2.1 changes the letters of orders.dlq already")
		p := h.submit(h.submit(h.open("letters?topic=logs.dlq"), "discard"), "confirm")
		require.Equal(t, "1 dead letter discarded", p.byID("result"))
		p = h.submit(h.letter("orders.dlq", 20), "redrive")
		require.Equal(t, "1 dead letter redriven", p.byID("result"))
		h.submit(first, "stop")
		p = h.submit(ask, "confirm")
		require.Contains(t, p.byID("result"), "redriven")
		require.Empty(t, ids(t, m, "orders.dlq"))
	})
}

// At most eight changes run at once.
func TestJobsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		h := change(t, m, console.Options{})
		var first page
		for i := range 9 {
			topic := fmt.Sprintf("t%d.dlq", i)
			for j := range 20 {
				bury(t, m, topic, fmt.Sprint(j), map[string]string{letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders"})
			}
			_, fields := h.submit(h.open("letters?topic="+topic), "discard").form("confirm")
			fields.Set("rate", "1")
			w := h.send(h.post(fields))
			if i == 8 {
				require.Equal(t, http.StatusConflict, w.Code)
				require.Contains(t, w.Body.String(), "8 changes run already")
				break
			}
			require.Equal(t, http.StatusSeeOther, w.Code)
			first = h.open(w.Header().Get("Location"))
		}
		h.submit(first, "stop")
		require.Len(t, h.open("jobs").cells("Changes"), 8)
		time.Sleep(2 * time.Hour)
		require.Empty(t, h.open("jobs").cells("Changes"), "a change is shown for an hour after its end")
		code, _ := h.answer("job?id=gone")
		require.Equal(t, http.StatusNotFound, code)
	})
}

// A job waits for a broker that is away, and goes on where it was. After a minute it gives up.
func TestJobThroughAnOutage(t *testing.T) {
	for _, verb := range []string{"redrive", "discard"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *meter) {
				attach(t, m, "orders", "billing")
				letters(t, m, 300)
				var log recordTail
				h := change(t, m, console.Options{Logger: log.logger()})
				start := func() page {
					return h.submit(h.submit(h.open("letters?topic=orders.dlq"), verb), "confirm", "rate", "100")
				}
				start()
				m.fail(backend.ErrUnavailable)
				time.Sleep(5 * time.Second)
				require.Equal(t, "waiting", h.open("jobs").cells("Changes")[0]["State"])
				m.fail(nil)
				time.Sleep(30 * time.Second)
				require.Equal(t, "300", h.open("jobs").cells("Changes")[0]["Done"])
				require.Empty(t, ids(t, m, "orders.dlq"))

				letters(t, m, 300)
				start()
				m.fail(backend.ErrUnavailable)
				time.Sleep(2 * time.Minute)
				m.fail(nil)
				require.Equal(t, "failed", h.open("jobs").cells("Changes")[0]["State"])
				require.NotEmpty(t, ids(t, m, "orders.dlq"), "the letters stay")
				require.Contains(t, log.String(), `level=ERROR msg="console: failed"`)
			})
		})
	}
}

// An error that does not pass ends a job at once.
func TestJobFailsForGood(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		p := h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm", "rate", "10")
		m.fail(backend.ErrDenied)
		time.Sleep(11 * time.Second)
		require.Equal(t, "running", p.byID("word"))
		p = h.open("jobs")
		require.Equal(t, "failed", p.cells("Changes")[0]["State"])
		require.Contains(t, h.open(p.link("Discard dead letters of orders.dlq")).text, "It has failed:")
	})
}

// A job ends after twelve hours.
func TestJobTakesTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm", "rate", "0.001")
		time.Sleep(11 * time.Hour)
		require.Equal(t, "running", h.open("jobs").cells("Changes")[0]["State"])
		time.Sleep(time.Hour + time.Minute)
		p := h.open("jobs")
		require.Equal(t, "failed", p.cells("Changes")[0]["State"])
		require.Contains(t, h.open(p.link("Discard dead letters of orders.dlq")).text, "the job has run for 12h0m0s")
	})
}

// A removing backend panics when it removes.
type removing struct{ *meter }

func (removing) Remove(context.Context, string, []string) error { panic("a mistake") }

func TestJobSurvivesAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		letters(t, m, 1)
		h := change(t, removing{m}, console.Options{})
		p := h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm")
		require.Contains(t, p.text, "the change has panicked: a mistake")
	})
}

// A redrive leaves letters whose events would loop, or whose group is gone, and says so.
func TestRedriveSaysWhatItLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		letters(t, m, 1)
		for id, why := range map[string]map[string]string{"loop": {letter.Redriven: "3", letter.Group: "billing"}, "gone": {letter.Group: "nobody"}} {
			why[letter.Reason], why[letter.Topic] = "exhausted", "orders"
			bury(t, m, "orders.dlq", id, why)
		}
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("letters?topic=orders.dlq"), "redrive")
		require.Equal(t, "3", ask.byID("found"))
		require.Contains(t, ask.text, "1 letter of them stay")
		p := h.submit(ask, "confirm")
		require.Equal(t, "1 of 3", p.byID("done"))
		require.Equal(t, "redriven too often 1, without their group 1", p.byID("left"))
		looping := h.letter("orders.dlq", 0)
		if !strings.Contains(looping.text, "loop") {
			looping = h.letter("orders.dlq", 1)
		}
		require.Equal(t, "1 dead letter redriven", h.submit(looping, "redrive").byID("result"), "an operator has chosen this one")
	})
}

// The log has the visitor, the action, the number of letters and the result of a change. It has no payload
// and no value of a header.
func TestLog(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		letters(t, m, 5)
		time.Sleep(time.Second)
		var log recordTail
		h := change(t, m, console.Options{Logger: log.logger(), Who: func(*http.Request) string { return strings.Repeat("ann ", 100) }})
		h.submit(h.submit(h.open("letters?topic=orders.dlq&group=billing"), "discard"), "confirm")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], `msg="console: begin" who="ann `)
		require.Contains(t, lines[1], `msg="console: end" who="ann `)
		require.Contains(t, lines[1], `action=discard topic=orders.dlq letters_of=billing done=9`)
		require.Contains(t, lines[1], `result="9 dead letters discarded"`)
		require.NotContains(t, log.String(), strings.Repeat("ann ", 65), "a name is bounded")

		letters(t, m, 3)
		h.submit(h.submit(h.open("letters?topic=orders.dlq&header=token&value=hunter2"), "discard"), "confirm")
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		_, fields := form.form("edit")
		h.submit(form, "edit", "payload", "card 4111", "name0", "token", "value0", "hunter2")
		h.submit(h.submit(h.letter("orders.dlq", 0), "edit"), "edit", "name0", "a b", "value0", "hunter2", "payload", "card 4111")
		h.submit(h.open("group?topic=orders&name=billing"), "pause", "why", "w")
		require.Contains(t, log.String(), "header=token value=true")
		require.Contains(t, log.String(), "action=pause topic=orders group=billing done=1")
		for _, secret := range []string{"hunter2", "4111", fields.Get("token"), h.cookie} {
			require.NotContains(t, log.String(), secret)
		}
	})
}

// A program that closes its backend ends the jobs soon.
func TestJobEndsWithTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)
		m := newMeter(t)
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		h.submit(h.submit(h.open("letters?topic=orders.dlq"), "redrive"), "confirm", "rate", "100")
		m.fail(fmt.Errorf("reading: %w", backend.ErrClosed))
		time.Sleep(3 * time.Second)
		require.Equal(t, "failed", h.open("jobs").cells("Changes")[0]["State"])
	})
}

// A forgetful backend has another time in which it knows an event again.
type forgetful struct {
	*meter
	once time.Duration
}

func (f forgetful) Limits() backend.Limits {
	l := f.meter.Limits()
	l.OnceWindow = f.once
	return l
}

// The page that asks says how long no event is handled twice on this backend.
func TestConfirmNamesTheOnceWindow(t *testing.T) {
	for once, want := range map[time.Duration]string{
		5 * time.Minute: "redrive them again within 5m0s, and no event is handled twice",
		0:               "redrive them again, and up to 100 events may be handled twice.",
	} {
		inBubble(t, func(t *testing.T, m *meter) {
			letters(t, m, 1)
			ask := change(t, forgetful{m, once}, console.Options{}).open("confirm?verb=redrive&topic=orders.dlq")
			require.Contains(t, ask.text, want)
		})
	}
}
