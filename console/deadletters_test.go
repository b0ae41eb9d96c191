package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/letter"
)

func TestLettersPage(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
		for _, want := range []string{"Why it failed Error no answer", "Event ID e-2", "Attempts 5", "main.go:1 main.go:2", "Payload, 12 B", `{ "id": "e-2" }`} {
			require.Contains(t, one.text, want)
		}
		require.NotContains(t, one.text, "eventbus-dead-", "the headers of a letter are shown once")
		require.Contains(t, v.page("letters?topic=orders.dlq&group=audit").text, "0 dead letters")
	})
}

// The page of letters says which letters it is about, and its buttons which and how many they change.
func TestLettersAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		letters(t, m, 300)
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{})
		h.open("letters?topic=orders.dlq")
		h.open("letters?topic=orders")
		time.Sleep(5 * time.Second) // they are counted
		for at, want := range map[string][2]string{
			"letters?topic=orders.dlq":               {"", "Redrive all 300 dead letters…"},
			"letters?topic=orders.dlq&group=billing": {"Only the dead letters with group billing (all dead letters )", "Redrive 300 dead letters…"},
			"letters?topic=orders.dlq&id=x-7":        {"Only the dead letters with id x-7 (all dead letters )", "Redrive the matching dead letters…"},
			"letters?topic=orders.dlq&value=hunter2": {"Only the dead letters with a header value (all dead letters )", "Redrive the matching dead letters…"},
			"letters?topic=orders.dlq&since=2h+ago":  {"Only the dead letters since 2h ago (all dead letters )", "Redrive the matching dead letters…"},
			"letters?topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=":      {"Only the dead letters with topic orders, group billing, reason exhausted, error class timeout (all dead letters )", "Redrive 100 dead letters of timeout…"},
			"letters?topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=&id=x": {"Only the dead letters with topic orders, group billing, reason exhausted, error class timeout, id x (all dead letters )", "Redrive the matching dead letters…"},
		} {
			p := h.open(at)
			require.Equal(t, want[0], p.byID("chosen"), at)
			require.Contains(t, p.text, want[1], at)
			require.NotContains(t, p.byID("chosen"), "hunter2")
		}
		other := h.open("letters?topic=orders")
		require.Contains(t, other.text, "The topic has no dead letters")
		require.False(t, other.has("redrive"))
		require.False(t, other.has("discard"))
	})
}

// If a request cannot count all letters, the count in the background is the total of the change.
func TestTotalOfManyLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		letters(t, m, 6000)
		h := change(t, m, console.Options{})
		h.open("letters?topic=orders.dlq")
		time.Sleep(10 * time.Second)
		ask := h.submit(h.open("letters?topic=orders.dlq"), "discard")
		require.Equal(t, "about 6 000", ask.byID("found"))
		require.Contains(t, ask.byID("ask"), "counted in the background")
		require.Equal(t, "6 000 of about 6 000", h.submit(ask, "confirm").byID("done"))
	})
}

// Dead-letter topics without letters take one line of the overview. They are known when they are counted.
func TestEmptyTopicsOfLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		attach(t, m, "payments", "billing")
		attach(t, m, "payments.dlq", "archive")
		v := visit(t, m, console.Options{})
		v.page("")
		time.Sleep(10 * time.Second)
		p := v.page("")
		require.Equal(t, "No dead letters in payments.dlq", p.byID("empty"))
		rows := p.cells("Dead-letter topics")
		require.Len(t, rows, 1)
		require.Equal(t, "orders.dlq", rows[0]["Topic"])
	})
}

// ids returns the IDs of the events of the letters in a topic.
func ids(t testing.TB, b backend.Backend, topic string) (all []string) {
	t.Helper()
	letters, err := deadletter.Open(b, topic)
	require.NoError(t, err)
	for l, err := range letters.All(t.Context(), deadletter.Filter{}) {
		require.NoError(t, err)
		all = append(all, l.ID)
	}
	return all
}

// last returns the last event of a topic that has fewer than 1,000.
func last(t testing.TB, b backend.Backend, topic string) *backend.Message {
	t.Helper()
	ms, err := backend.Read(t.Context(), b, topic, backend.StartEarliest, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, ms)
	return &ms[len(ms)-1]
}

// letters buries n letters of billing, of which each third has the class timeout.
func letters(t testing.TB, b backend.Backend, n int) {
	for i := range n {
		bury(t, b, "orders.dlq", fmt.Sprint("x-", i), map[string]string{
			letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders", letter.ErrorClass: []string{"timeout", "", ""}[i%3],
			letter.LastAttempt: time.Now().Add(-time.Second).Format(time.RFC3339Nano),
		})
	}
}

// A letter that is redriven goes to its group, and no longer is a letter.
func TestRedriveOne(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		p := h.submit(h.letter("orders.dlq", 1), "redrive")
		require.Equal(t, "1 dead letter redriven", p.byID("result"))
		require.Equal(t, []string{"e-0", "e-2", "e-3"}, ids(t, m, "orders.dlq"))
		got := last(t, m, "orders")
		require.Equal(t, "billing", letter.Restore(got))
		require.Equal(t, "e-1", got.ID)
		require.JSONEq(t, `{"id":"e-1"}`, string(got.Payload))
	})
}

// The way back from a question shows the same letters, so that the next question is about them too.
func TestTheWayBackKeepsTheFilter(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		time.Sleep(time.Second) // a letter of this moment is later than the page
		h := change(t, m, console.Options{})
		for url, want := range map[string]string{
			"letters?topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=": "1",
			"letters?topic=orders.dlq&id=e-2":        "1",
			"letters?topic=orders.dlq&group=billing": "4",
			"letters?topic=orders.dlq&since=1h":      "4",
		} {
			for range 2 {
				ask := h.submit(h.open(url), "discard")
				require.Equal(t, want, ask.byID("found"), url)
				url = ask.link("Cancel")
			}
		}
		one := h.submit(h.letter("orders.dlq", 2), "discard")
		require.Equal(t, "1", h.submit(h.open(one.link("Cancel")), "discard").byID("found"))
	})
}

// A topic's dead letters are counted again after a change, and a count's age starts at its beginning.
func TestAChangeIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		h.open("letters?topic=orders.dlq")
		time.Sleep(10 * time.Second)
		require.Contains(t, h.open("letters?topic=orders.dlq").text, "4 dead letters, counted 1")
		for range 3 {
			h.submit(h.submit(h.letter("orders.dlq", 0), "discard"), "confirm")
		}
		time.Sleep(3 * time.Second)
		require.Contains(t, h.open("letters?topic=orders.dlq").text, "1 dead letter, counted ")
	})
}

// The page asks before it discards, and a dry run changes nothing.
func TestDiscardOne(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		h := change(t, m, console.Options{})
		ask := h.submit(h.letter("orders.dlq", 2), "discard")
		require.Equal(t, "1", ask.byID("found"))
		require.Contains(t, ask.text, "removed for good")
		require.Len(t, ids(t, m, "orders.dlq"), 4, "nothing is changed yet")
		p := h.submit(ask, "confirm")
		require.Equal(t, "1 dead letter discarded", p.byID("result"))
		require.Equal(t, []string{"e-0", "e-1", "e-3"}, ids(t, m, "orders.dlq"))
		again := h.submit(ask, "confirm")
		require.Equal(t, "no dead letters match anymore", again.byID("result"))
	})
}

// A change takes exactly the letters that the page has counted: of the filter, and not later ones.
func TestChangeAFilter(t *testing.T) {
	for verb, results := range map[string][2]string{"redrive": {"redrive", "redriven"}, "discard": {"discard", "discarded"}} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *countingBackend) {
				attach(t, m, "orders", "billing")
				numbered(t, m, "orders", 1)
				letters(t, m, 300)
				h := change(t, m, console.Options{})
				list := h.open("letters?topic=orders.dlq")
				p := h.open(list.link("100"))
				calls := len(ids(t, m, "orders.dlq"))
				ask := h.submit(p, verb)
				require.Equal(t, "100", ask.byID("found"))
				require.Contains(t, ask.byID("filter"), "timeout")
				require.Len(t, ids(t, m, "orders.dlq"), calls, "a dry run changes nothing")
				require.Equal(t, "e-0", last(t, m, "orders").ID)
				bury(t, m, "orders.dlq", "later", map[string]string{
					letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders", letter.ErrorClass: "timeout",
					letter.LastAttempt: time.Now().Add(time.Second).Format(time.RFC3339Nano),
				})
				done := h.submit(ask, "confirm")
				require.Equal(t, "100 dead letters "+results[1], done.byID("result"))
				require.Equal(t, "100 of 100", done.byID("done"))
				require.Contains(t, done.byID("chosen"), "group billing, reason exhausted, error class timeout")
				require.Contains(t, h.open("jobs").text, "error class timeout", "changes of two classes differ")
				left := ids(t, m, "orders.dlq")
				require.Len(t, left, 201)
				require.Equal(t, "later", left[200])
				require.NotContains(t, left, "x-3")
				require.Equal(t, verb == "redrive", last(t, m, "orders").ID != "e-0")
			})
		})
	}
}

// The letters of one group are a filter too.
func TestChangeTheLettersOfAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		letters(t, m, 3)
		bury(t, m, "orders.dlq", "other", map[string]string{letter.Reason: "exhausted", letter.Group: "audit", letter.Topic: "orders"})
		h := change(t, m, console.Options{})
		p := h.open("letters?topic=orders.dlq&group=billing")
		require.Len(t, p.cells("Events of"), 3)
		ask := h.submit(p, "discard")
		require.Equal(t, "3", ask.byID("found"))
		h.submit(ask, "confirm")
		require.Equal(t, []string{"other"}, ids(t, m, "orders.dlq"))
	})
}

// A change begins at the time of the page, although the page was asked for "30m ago" and answered later.
func TestChangeTheLettersSinceATime(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		letters(t, m, 3)
		time.Sleep(time.Hour)
		bury(t, m, "orders.dlq", "late", map[string]string{letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders"})
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("letters?topic=orders.dlq&since=30m+ago"), "discard")
		require.Equal(t, "1", ask.byID("found"))
		time.Sleep(20 * time.Minute)
		h.submit(ask, "confirm")
		require.Equal(t, []string{"x-0", "x-1", "x-2"}, ids(t, m, "orders.dlq"))
	})
}

// A count that has reached its bound says so.
func TestCountIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		letters(t, m, 6000)
		h := change(t, m, console.Options{})
		before := m.events.Load()
		ask := h.submit(h.open("letters?topic=orders.dlq&id=x-1"), "discard")
		require.Equal(t, "1 or more", ask.byID("found"))
		require.LessOrEqual(t, m.events.Load()-before, int64(20_000), "one search, one count of 5,000, and the figures")
	})
}

// A letter that the pages do not show as a dead letter is neither counted nor changed.
func TestChangeLeavesLettersThatAreNotShown(t *testing.T) {
	for name, redact := range map[string]func(string, *eventbus.Event){
		"Redact drops the headers": func(_ string, e *eventbus.Event) { e.Headers = nil },
		"Redact panics":            func(string, *eventbus.Event) { panic("a mistake") },
	} {
		for _, verb := range []string{"discard", "redrive"} {
			t.Run(name+", "+verb, func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *countingBackend) {
					shop(t, m)
					time.Sleep(time.Second) // a letter of this moment is later than the page
					h := change(t, m, console.Options{Redact: redact})
					ask := h.open("confirm?topic=orders.dlq&verb=" + verb)
					require.Equal(t, "0", ask.byID("found"))
					require.Equal(t, "no dead letters match anymore", h.submit(ask, "confirm").byID("result"))
					require.Len(t, ids(t, m, "orders.dlq"), 4)
				})
			})
		}
	}
}

// An event that only Redact turns into a dead letter is neither counted nor changed.
func TestCountLeavesEventsThatAreNoLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) { e.Headers.Set(letter.Reason, "exhausted") }})
		require.Equal(t, "0", h.open("confirm?topic=orders&verb=discard").byID("found"))
	})
}

// Redact cannot move the bounds of a change: letters of later failures stay, and looping ones are counted.
func TestRedactMovesNoBound(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		why := map[string]string{
			letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders", letter.Redriven: "3",
			letter.LastAttempt: time.Now().Add(-time.Second).Format(time.RFC3339Nano),
		}
		bury(t, m, "orders.dlq", "looping", why)
		h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) {
			e.Headers.Del(letter.LastAttempt)
			e.Headers.Del(letter.Redriven)
		}})
		ask := h.open("confirm?topic=orders.dlq&verb=redrive")
		require.Contains(t, ask.text, "Of these, 1 dead letter will stay")
		ask = h.open("confirm?topic=orders.dlq&verb=discard")
		why[letter.LastAttempt] = time.Now().Add(time.Second).Format(time.RFC3339Nano)
		bury(t, m, "orders.dlq", "later", why)
		h.submit(ask, "confirm")
		require.Equal(t, []string{"later"}, ids(t, m, "orders.dlq"))
	})
}

// A change calls Redact with the same topic as the pages: a partition has the name of its topic.
func TestChangeRedactsLikeThePages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 1)
		const topic = "letters.partition-0"
		bury(t, m, topic, "x", map[string]string{
			letter.Reason: "exhausted", letter.Group: "billing", letter.Topic: "orders", "secret": "hunter2",
			letter.LastAttempt: time.Now().Add(-time.Second).Format(time.RFC3339Nano),
		})
		h := change(t, m, console.Options{Redact: func(topic string, e *eventbus.Event) {
			if topic == "letters" {
				e.Payload = []byte("***")
				e.Headers.Set("secret", "***")
			}
		}})
		ask := h.open("confirm?verb=discard&topic=" + topic + "&header=secret&value=hunter2")
		require.Equal(t, "0", ask.byID("found"), "a search cannot guess a hidden value")
		require.Equal(t, "no dead letters match anymore", h.submit(ask, "confirm").byID("result"))

		form := h.submit(h.letter(topic, 0), "edit")
		_, fields := form.form("edit")
		require.Equal(t, "***", fields.Get("payload"))
		require.Equal(t, "1 dead letter redriven", h.submit(form, "edit", "type", "mended").byID("result"))
		got := last(t, m, "orders")
		require.Equal(t, "mended", got.Headers.Get("ce-type"))
		require.Equal(t, "hunter2", got.Headers.Get("secret"))
		require.NotEqual(t, "***", string(got.Payload))
	})
}
