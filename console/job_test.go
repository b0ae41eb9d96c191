package console_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/lifecycle"
)

// A long job shows its progress, and stops when somebody stops it. The letters that it has not
// reached stay.
func TestStop(t *testing.T) {
	for _, verb := range []string{"redrive", "discard"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				attach(t, m, "orders", "billing")
				letters(t, m, 300)
				var log logBuffer
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
				require.Len(t, ids(t, m, "orders.dlq"), left, "nothing continues")
				require.Contains(t, log.String(), `msg="console: stop" who=ann action=stop topic=orders.dlq`)
				require.Contains(t, log.String(), `result="stopped by ann"`)
			})
		})
	}
}

// One job at a time changes the letters of a topic. Other topics, and single letters, do not wait.
func TestOneJobForATopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		bury(t, m, "logs.dlq", "y", map[string]string{letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders"})
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("letters?topic=orders.dlq"), "redrive")
		first := h.submit(ask, "confirm", "rate", "1")
		_, fields := ask.form("confirm")
		w := h.send(h.post(fields))
		require.Equal(t, http.StatusConflict, w.Code)
		require.Contains(t, w.Body.String(), "a job of 192.0.2.1 is already changing the dead letters of orders.dlq")
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
				require.Contains(t, w.Body.String(), "8 changes are already running")
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

// While the broker is away, a job waits, and then continues where it was. After a minute it gives up.
func TestJobThroughAnOutage(t *testing.T) {
	for _, verb := range []string{"redrive", "discard"} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				attach(t, m, "orders", "billing")
				letters(t, m, 300)
				var log logBuffer
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		p := h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm", "rate", "10")
		m.fail(backend.ErrDenied)
		time.Sleep(11 * time.Second)
		require.Equal(t, "running", p.byID("word"))
		p = h.open("jobs")
		require.Equal(t, "failed", p.cells("Changes")[0]["State"])
		require.Contains(t, h.open(p.link("Discard dead letters of orders.dlq")).text, "Failed:")
	})
}

// A job ends after twelve hours.
func TestJobTakesTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm", "rate", "0.001")
		time.Sleep(11 * time.Hour)
		require.Equal(t, "running", h.open("jobs").cells("Changes")[0]["State"])
		time.Sleep(time.Hour + time.Minute)
		p := h.open("jobs")
		require.Equal(t, "failed", p.cells("Changes")[0]["State"])
		require.Contains(t, h.open(p.link("Discard dead letters of orders.dlq")).text, "the job was stopped after 12h0m0s")
	})
}

// A removing backend panics when it removes.
type removing struct{ *countingBackend }

func (removing) Remove(context.Context, string, []string) error { panic("a mistake") }

func TestJobSurvivesAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		letters(t, m, 1)
		h := change(t, removing{m}, console.Options{})
		p := h.submit(h.submit(h.open("letters?topic=orders.dlq"), "discard"), "confirm")
		require.Contains(t, p.text, "the change panicked: a mistake")
	})
}

// A redrive leaves letters whose events would loop, or whose group is gone, and says so.
func TestRedriveSaysWhatItLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		letters(t, m, 1)
		for id, why := range map[string]map[string]string{"loop": {letter.Redriven: "3", letter.Group: "billing"}, "gone": {letter.Group: "nobody"}} {
			why[letter.Reason], why[letter.Topic] = "exhausted", "orders"
			bury(t, m, "orders.dlq", id, why)
		}
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("letters?topic=orders.dlq"), "redrive")
		require.Equal(t, "3", ask.byID("found"))
		require.Contains(t, ask.text, "Of these, 1 dead letter will stay")
		p := h.submit(ask, "confirm")
		require.Equal(t, "1 of 3", p.byID("done"))
		require.Equal(t, "redriven too often 1, group missing 1", p.byID("left"))
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		letters(t, m, 5)
		time.Sleep(time.Second)
		var log logBuffer
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
		m := newCountingBackend(t)
		attach(t, m, "orders", "billing")
		letters(t, m, 300)
		h := change(t, m, console.Options{})
		h.submit(h.submit(h.open("letters?topic=orders.dlq"), "redrive"), "confirm", "rate", "100")
		m.fail(fmt.Errorf("reading: %w", backend.ErrClosed))
		time.Sleep(3 * time.Second)
		require.Equal(t, "failed", h.open("jobs").cells("Changes")[0]["State"])
	})
}

// A shortWindowBackend backend has another time in which it knows an event again.
type shortWindowBackend struct {
	*countingBackend
	once time.Duration
}

func (f shortWindowBackend) Limits() backend.Limits {
	l := f.countingBackend.Limits()
	l.OnceWindow = f.once
	return l
}

// The page that asks says how long no event is handled twice on this backend.
func TestConfirmNamesTheOnceWindow(t *testing.T) {
	for once, want := range map[time.Duration]string{
		5 * time.Minute: "Redrive them again within 5m0s, and no event is handled twice",
		0:               "When you redrive them again, up to 100 events may be handled twice.",
	} {
		inBubble(t, func(t *testing.T, m *countingBackend) {
			letters(t, m, 1)
			ask := change(t, shortWindowBackend{m, once}, console.Options{}).open("confirm?verb=redrive&topic=orders.dlq")
			require.Contains(t, ask.text, want)
		})
	}
}

// A hanging backend does not answer calls with one name, until their context ends. It stores events
// before it hangs, so that their outcome is not known, and removes nothing.
type hanging struct {
	*countingBackend
	call atomic.Pointer[string]
}

func (h *hanging) hang(ctx context.Context, call string, err error) error {
	if name := h.call.Load(); name == nil || *name != call {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Publish(ctx context.Context, ms []*backend.Message) error {
	return h.hang(ctx, "publish", h.countingBackend.Publish(ctx, ms))
}

func (h *hanging) Remove(ctx context.Context, topic string, positions []string) error {
	if err := h.hang(ctx, "remove", nil); err != nil {
		return err
	}
	return h.countingBackend.Remove(ctx, topic, positions)
}

func (h *hanging) Groups(ctx context.Context, topic string) ([]string, error) {
	groups, err := h.countingBackend.Groups(ctx, topic)
	return groups, h.hang(ctx, "groups", err)
}

func (h *hanging) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	ms, err := h.countingBackend.Read(ctx, topic, from, limit)
	return ms, h.hang(ctx, "read", err)
}

// A slow backend takes a while for each page of events.
type slow struct {
	*countingBackend
	page time.Duration
}

func (s *slow) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	select {
	case <-time.After(s.page):
		return s.countingBackend.Read(ctx, topic, from, limit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A request of a slow backend ends with the events that were read in its time, and is continued.
func TestReadingASlowBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		numbered(t, m, "orders", 3000)
		v := visit(t, &slow{m, 1900 * time.Millisecond}, console.Options{})
		began := time.Now()
		p := v.page("topic?name=orders&key=key3&type=type0")
		require.Less(t, time.Since(began), 8*time.Second)
		require.NotEmpty(t, p.link("Continue the search"))
		var got []string
		for i := 3; i < 3000; i += 21 {
			got = append(got, fmt.Sprint("e-", i))
		}
		require.Equal(t, got, walk(v, "topic?name=orders&key=key3&type=type0", "Continue the search"))
	})
	inBubble(t, func(t *testing.T, m *countingBackend) {
		numbered(t, m, "orders", 100)
		v := visit(t, &slow{m, 3500 * time.Millisecond}, console.Options{Timeout: 4 * time.Second})
		require.Equal(t, "e-0", v.page("topic?name=orders&order=oldest").ids()[0])
		require.Len(t, walk(v, "topic?name=orders&order=oldest", "Newer events"), 100)
	})
	inBubble(t, func(t *testing.T, m *countingBackend) {
		for i := range 400 {
			note(t, m, lifecycle.Record{State: lifecycle.Completed, Group: "g", ID: fmt.Sprint("e-", i)})
			time.Sleep(10 * time.Millisecond)
		}
		for page := 100 * time.Millisecond; page < 2*time.Second; page += 100 * time.Millisecond {
			_, body := visit(t, &slow{m, page}, console.Options{}).answer("lifecycle?topic=orders")
			require.NotContains(t, body, "There are no records", "%v for a page", page)
		}
	})
}

// A call that hangs counts as a broker that is away: the change continues when calls return
// again, and stores no event twice.
func TestJobThroughACallThatHangs(t *testing.T) {
	for verb, calls := range map[string][]string{"redrive": {"read", "groups", "publish", "remove"}, "discard": {"read", "remove"}} {
		for _, call := range calls {
			for _, ends := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, ends %v", verb, call, ends), func(t *testing.T) {
					inBubble(t, func(t *testing.T, m *countingBackend) { throughAHang(t, m, verb, call, ends) })
				})
			}
		}
	}
}

func throughAHang(t *testing.T, m *countingBackend, verb, call string, ends bool) {
	attach(t, m, "orders", "billing")
	letters(t, m, 300)
	b := &hanging{countingBackend: m}
	h := change(t, b, console.Options{})
	ask := h.submit(h.open("letters?topic=orders.dlq"), verb)
	b.call.Store(&call)
	h.submit(ask, "confirm")
	if ends {
		time.Sleep(15 * time.Second)
		b.call.Store(nil)
	}
	time.Sleep(3 * time.Minute)
	b.call.Store(nil)
	row := h.open("jobs").cells("Changes")[0]
	if !ends {
		require.Equal(t, "failed", row["State"], "a job does not keep its place for hours")
		return
	}
	require.Equal(t, "done", row["State"])
	require.Empty(t, ids(t, m, "orders.dlq"))
	if verb == "redrive" {
		ms, err := backend.Read(t.Context(), m, "orders", backend.StartEarliest, 1000)
		require.NoError(t, err)
		got := map[string]int{}
		for i := range ms {
			letter.Restore(&ms[i])
			got[ms[i].ID]++
		}
		require.Len(t, ms, 300)
		require.Len(t, got, 300, "no event is stored twice")
	}
}
