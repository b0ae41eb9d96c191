package console_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/console"
)

// The page of letters says which letters it is about, and its buttons which and how many they change.
func TestLettersAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		letters(t, m, 300)
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{})
		h.open("letters?topic=orders.dlq")
		h.open("letters?topic=orders")
		time.Sleep(5 * time.Second) // they are counted
		for at, want := range map[string][2]string{
			"letters?topic=orders.dlq":               {"", "Redrive all 300 letters…"},
			"letters?topic=orders.dlq&group=billing": {"Only the letters with group billing (all letters )", "Redrive 300 letters…"},
			"letters?topic=orders.dlq&id=x-7":        {"Only the letters with id x-7 (all letters )", "Redrive the letters that match…"},
			"letters?topic=orders.dlq&value=hunter2": {"Only the letters with a value of a header (all letters )", "Redrive the letters that match…"},
			"letters?topic=orders.dlq&since=2h+ago":  {"Only the letters since 2h ago (all letters )", "Redrive the letters that match…"},
			"letters?topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=":      {"Only the letters with topic orders, group billing, reason exhausted, error class timeout (all letters )", "Redrive 100 letters of timeout…"},
			"letters?topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted&class=timeout&etype=&id=x": {"Only the letters with topic orders, group billing, reason exhausted, error class timeout, id x (all letters )", "Redrive the letters that match…"},
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
	inBubble(t, func(t *testing.T, m *meter) {
		letters(t, m, 6000)
		h := change(t, m, console.Options{})
		h.open("letters?topic=orders.dlq")
		time.Sleep(10 * time.Second)
		ask := h.submit(h.open("letters?topic=orders.dlq"), "discard")
		require.Equal(t, "about 6 000", ask.byID("found"))
		require.Contains(t, ask.byID("ask"), "the count was made in the background")
		require.Equal(t, "6 000 of about 6 000", h.submit(ask, "confirm").byID("done"))
	})
}

// A group has a button for the change that is possible, and the state of its pause in the overview.
func TestPauseOrResume(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		h := change(t, m, console.Options{})
		at := "group?topic=orders&name=billing"
		p := h.open(at)
		require.True(t, p.has("pause"))
		require.False(t, p.has("resume"))
		h.submit(p, "pause", "why", "the bank is closed", "until", "2h")
		p = h.open(at)
		require.False(t, p.has("pause"))
		require.True(t, p.has("resume"))
		time.Sleep(15 * time.Second)
		until := time.Now().UTC().Add(2*time.Hour - 15*time.Second).Format("2006-01-02 15:04:05")
		require.Contains(t, h.open(at).text, ", until "+until)
		for _, row := range h.open("").cells("Groups") {
			if row["Group"] == "billing" {
				require.Contains(t, row["Status"], "paused until "+until)
				require.Contains(t, row["Status"], "by 192.0.2.1: the bank is closed")
			}
		}
		parts := h.open("group?topic=parts&name=g")
		require.True(t, parts.has("pause"))
		require.True(t, parts.has("resume"), "some partitions may be paused")
	})
}

// A refused change leads back to the page of its form.
func TestRefusalsLeadBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		h := change(t, m, console.Options{})
		refusing := change(t, m, console.Options{Allow: func(_ *http.Request, a console.Action) error {
			if a.DryRun {
				return nil
			}
			return errors.New("no")
		}})
		pause := func(h *hand, why string) page {
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

// Dead-letter topics without letters take one line of the overview. They are known when they are counted.
func TestEmptyTopicsOfLetters(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		attach(t, m, "payments", "billing")
		attach(t, m, "payments.dlq", "archive")
		v := visit(t, m, console.Options{})
		v.page("")
		time.Sleep(10 * time.Second)
		p := v.page("")
		require.Equal(t, "No dead letters in payments.dlq", p.byID("empty"))
		rows := p.cells("Topics of dead letters")
		require.Len(t, rows, 1)
		require.Equal(t, "orders.dlq", rows[0]["Topic"])
	})
}

// A topic without a group says what becomes of its events.
func TestTopicWithoutAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("topic?name=logs").text, "No group reads this topic. Its events stay, unless a limit of the topic removes them.")
		require.NotContains(t, v.page("topic?name=orders").text, "No group reads this topic")
	})
}

// Pages lead to the things that they name, and the navigation marks the page.
func TestLinks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
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
