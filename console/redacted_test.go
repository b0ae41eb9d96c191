package console_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A letter that the pages do not show as a dead letter is neither counted nor changed.
func TestChangeLeavesLettersThatAreNotShown(t *testing.T) {
	for name, redact := range map[string]func(string, *eventbus.Event){
		"Redact drops the headers": func(_ string, e *eventbus.Event) { e.Headers = nil },
		"Redact panics":            func(string, *eventbus.Event) { panic("a mistake") },
	} {
		for _, verb := range []string{"discard", "redrive"} {
			t.Run(name+", "+verb, func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *meter) {
					shop(t, m)
					time.Sleep(time.Second) // a letter of this moment is later than the page
					h := change(t, m, console.Options{Redact: redact})
					ask := h.open("confirm?topic=orders.dlq&verb=" + verb)
					require.Equal(t, "0", ask.byID("found"))
					require.Equal(t, "no dead letter matches any more", h.submit(ask, "confirm").byID("result"))
					require.Len(t, ids(t, m, "orders.dlq"), 4)
				})
			})
		}
	}
}

// An event that only Redact turns into a dead letter is neither counted nor changed.
func TestCountLeavesEventsThatAreNoLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) { e.Headers.Set(letter.Reason, "exhausted") }})
		require.Equal(t, "0", h.open("confirm?topic=orders&verb=discard").byID("found"))
	})
}

// Redact cannot move the bounds of a change: letters of later failures stay, and looping ones are counted.
func TestRedactMovesNoBound(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
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
		require.Contains(t, ask.text, "1 letter of them stay")
		ask = h.open("confirm?topic=orders.dlq&verb=discard")
		why[letter.LastAttempt] = time.Now().Add(time.Second).Format(time.RFC3339Nano)
		bury(t, m, "orders.dlq", "later", why)
		h.submit(ask, "confirm")
		require.Equal(t, []string{"later"}, ids(t, m, "orders.dlq"))
	})
}

// A change calls Redact with the same topic as the pages: a partition has the name of its topic.
func TestChangeRedactsLikeThePages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
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
		require.Equal(t, "no dead letter matches any more", h.submit(ask, "confirm").byID("result"))

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
