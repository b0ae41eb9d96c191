package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/internal/partition"
)

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
	inBubble(t, func(t *testing.T, m *meter) {
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
	inBubble(t, func(t *testing.T, m *meter) {
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
				url = ask.link("Back, without a change")
			}
		}
		one := h.submit(h.letter("orders.dlq", 2), "discard")
		require.Equal(t, "1", h.submit(h.open(one.link("Back, without a change")), "discard").byID("found"))
	})
}

// The letters of a topic are counted anew after a change, and a count is as old as its beginning.
func TestAChangeIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
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
	inBubble(t, func(t *testing.T, m *meter) {
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
		require.Equal(t, "no dead letter matches any more", again.byID("result"))
	})
}

// A change takes exactly the letters that the page has counted: of the filter, and not later ones.
func TestChangeAFilter(t *testing.T) {
	for verb, results := range map[string][2]string{"redrive": {"redrive", "redriven"}, "discard": {"discard", "discarded"}} {
		t.Run(verb, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *meter) {
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
	inBubble(t, func(t *testing.T, m *meter) {
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
	inBubble(t, func(t *testing.T, m *meter) {
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
	inBubble(t, func(t *testing.T, m *meter) {
		letters(t, m, 6000)
		h := change(t, m, console.Options{})
		before := m.events.Load()
		ask := h.submit(h.open("letters?topic=orders.dlq&id=x-1"), "discard")
		require.Equal(t, "1 or more", ask.byID("found"))
		require.LessOrEqual(t, m.events.Load()-before, int64(20_000), "one search, one count of 5,000, and the figures")
	})
}

// An edited event has the new fields. The fields that nobody has changed keep their bytes.
func TestEdit(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		m0 := &backend.Message{Topic: "orders.dlq", ID: "l", Key: "ann", Payload: []byte("one\r\ntwo"), Headers: backend.Headers{
			{Name: "ce-type", Value: "order.placed"},
			{Name: "keep", Value: "a  b"},
			{Name: "change", Value: "old"},
			{Name: "drop", Value: "x"},
			{Name: letter.Reason, Value: "exhausted"},
			{Name: letter.Group, Value: "billing"},
			{Name: letter.Topic, Value: "orders"},
			{Name: letter.ID, Value: "e-1"},
		}}
		second := *m0
		second.ID, second.Headers = "l2", append(backend.Headers{}, m0.Headers...)
		second.Headers.Set(letter.ID, "e-2")
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{m0, &second}))
		h := change(t, m, console.Options{})
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		_, fields := form.form("edit")
		require.Equal(t, "ann", fields.Get("key"))
		require.Equal(t, "change", fields.Get("name0"))
		p := h.submit(form, "edit", "type", "order.mended", "value0", "new", "name1", "", "name3", "added", "value3", "z", "payload", "one\r\ntwo")
		require.Equal(t, "1 dead letter redriven", p.byID("result"))
		got := last(t, m, "orders")
		letter.Restore(got)
		e := eventbus.EventOf(got)
		require.Equal(t, "order.mended", e.Type)
		require.Equal(t, "ann", e.Key)
		require.Equal(t, "one\r\ntwo", string(e.Payload), "an unchanged payload keeps its line ends")
		for name, want := range map[string]string{"keep": "a  b", "change": "new", "drop": "", "added": "z"} {
			require.Equal(t, want, e.Headers.Get(name), name)
		}
		require.Equal(t, []string{"e-2"}, ids(t, m, "orders.dlq"))

		form = h.submit(h.letter("orders.dlq", 0), "edit")
		p = h.submit(form, "edit", "key", "bob", "payload", `{"n": 1}`)
		require.Equal(t, "1 dead letter redriven", p.byID("result"), p.text)
		got = last(t, m, "orders")
		require.Equal(t, "bob", got.Key)
		require.Equal(t, `{"n": 1}`, string(got.Payload))
	})
}

// An edit that the bus would not publish is refused, and the letter stays.
func TestEditRefusesWrongFields(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		h := change(t, m, console.Options{})
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		for name, value := range map[string]string{"name0": "eventbus-dead-reason", "name1": "a b", "name2": "ce-type", "key": strings.Repeat("k", 600)} {
			p := h.submit(form, "edit", name, value)
			require.Contains(t, p.byID("left"), "refused 1", name)
		}
		require.Len(t, ids(t, m, "orders.dlq"), 4)
	})
}

// A field that Redact hides is neither shown in a form nor lost by an edit, and a search cannot guess it.
func TestEditWithRedact(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		m0 := &backend.Message{Topic: "orders.dlq", ID: "l", Payload: []byte("card 4111"), Headers: backend.Headers{
			{Name: "token", Value: "hunter2"},
			{Name: letter.Reason, Value: "exhausted"},
			{Name: letter.Group, Value: "billing"},
			{Name: letter.Topic, Value: "orders"},
			{Name: letter.ID, Value: "e-1"},
		}}
		require.NoError(t, m.Publish(t.Context(), []*backend.Message{m0}))
		h := change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) {
			e.Payload = []byte("(hidden)")
			if e.Headers.Get("token") != "" {
				e.Headers.Set("token", "(hidden)")
			}
		}})
		ask := h.submit(h.open("letters?topic=orders.dlq&value=hunter2"), "discard")
		require.Equal(t, "0", ask.byID("found"))
		form := h.submit(h.letter("orders.dlq", 0), "edit")
		require.NotContains(t, form.text, "4111")
		h.submit(ask, "confirm")
		require.Len(t, ids(t, m, "orders.dlq"), 1, "a search cannot discard by a hidden value")
		h.submit(form, "edit", "type", "mended")
		got := last(t, m, "orders")
		require.Equal(t, "card 4111", string(got.Payload))
		require.Equal(t, "hunter2", got.Headers.Get("token"))
		require.Equal(t, "mended", got.Headers.Get("ce-type"))
	})
}

func TestChangeAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		h := change(t, m, console.Options{})
		at := "group?topic=orders&name=billing"
		p := h.submit(h.open(at), "pause", "why", "the bank is closed", "until", "2h")
		require.Contains(t, p.byID("result"), "group billing of orders is paused until "+time.Now().UTC().Add(2*time.Hour).Format("2006-01-02 15:04"))
		pause, err := m.Paused(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Equal(t, "the bank is closed", pause.Why)
		require.Equal(t, "192.0.2.1", pause.By)
		h.submit(h.open(at), "resume")
		pause, err = m.Paused(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Zero(t, pause)

		ask := h.submit(h.open(at), "reset", "to", "latest")
		require.Equal(t, "60 unsettled events", ask.byID("found"))
		stats, err := m.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Equal(t, int64(2), stats.InFlight, "nothing is changed yet")
		p = h.submit(ask, "confirm")
		require.Equal(t, "group billing of orders begins again at latest, and has 0 unsettled events", p.byID("result"))

		ask = h.submit(h.open(at), "delete-group")
		groups, err := m.Groups(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, []string{"audit", "billing"}, groups, "nothing is changed yet")
		p = h.submit(ask, "confirm")
		require.Equal(t, "group billing of orders is deleted", p.byID("result"))
		groups, err = m.Groups(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, []string{"audit"}, groups)
	})
}

// A time ago means the time before which the page has asked.
func TestResetToATime(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 5)
		time.Sleep(time.Hour)
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{})
		ask := h.submit(h.open("group?topic=orders&name=billing"), "reset", "to", "30m ago")
		time.Sleep(29*time.Minute + time.Hour)
		require.Contains(t, h.submit(ask, "confirm").byID("result"), "has 3 unsettled events")
	})
}

// A change of a group of a topic with partitions is one in each of them, like the commands.
func TestChangeAGroupWithPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		require.NoError(t, partition.Agree(t.Context(), m, "parts", 3))
		h := change(t, m, console.Options{})
		at := "group?topic=parts&name=g"
		p := h.submit(h.open(at), "pause", "why", "a test")
		require.Equal(t, "group g of parts is paused until somebody resumes it, in 3 partitions, and has 6 unsettled events", p.byID("result"))
		for i := range 3 {
			pause, err := m.Paused(t.Context(), partition.Topic("parts", i), "g")
			require.NoError(t, err)
			require.Equal(t, "a test", pause.Why)
		}
		h.submit(h.open(at), "resume")
		ask := h.submit(h.open(at), "reset", "to", "latest")
		require.Contains(t, ask.byID("ask"), "6 unsettled events in 3 partitions")
		require.Contains(t, h.submit(ask, "confirm").byID("result"), "has 0 unsettled events")
		for url, want := range map[string]string{
			"confirm?verb=reset&topic=parts&name=g&to=7":     "each has positions of its own",
			"confirm?verb=delete-group&topic=parts&name=g":   "whose owners rest on the group",
			"confirm?verb=reset&topic=orders&name=nobody":    "the place is empty",
			"confirm?verb=reset&topic=orders&name=x&to=late": "did you mean",
		} {
			code, body := h.answer(url)
			require.Equal(t, 400, code, url)
			require.Contains(t, parse(t, body).text, want)
		}
	})
}

// The inner topics of a topic with partitions are no way around its rules, nor around Allow.
func TestGroupsOfInnerTopicsAreNotChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		require.NoError(t, partition.Agree(t.Context(), m, "parts", 2))
		attach(t, m, "other.partition-0", "g")
		h := change(t, m, console.Options{})
		_, fields := h.open("confirm?verb=delete-group&topic=other.partition-0&name=g").form("confirm")
		for _, topic := range []string{partition.Topic("parts", 0), partition.OwnersTopic("parts"), partition.MembersTopic("parts")} {
			attach(t, m, topic, "g")
			numbered(t, m, topic, 1)
			for _, verb := range []string{"delete-group", "reset", "pause"} {
				if verb != "pause" {
					code, body := h.answer("confirm?to=latest&name=g&verb=" + verb + "&topic=" + topic)
					require.Equal(t, 400, code)
					require.Contains(t, parse(t, body).text, "change the group there")
				}
				fields.Set("topic", topic)
				fields.Set("verb", verb)
				fields.Set("to", "latest")
				w := h.send(h.post(fields))
				require.Contains(t, h.open(w.Header().Get("Location")).text, "change the group there", "%s of %s", verb, topic)
			}
			stats, err := m.Stats(t.Context(), topic, "g")
			require.NoError(t, err)
			require.Equal(t, int64(1), stats.Lag)
			pause, err := m.Paused(t.Context(), topic, "g")
			require.NoError(t, err)
			require.Zero(t, pause)
		}
		fields.Set("topic", "other.partition-0")
		fields.Set("verb", "delete-group")
		w := h.send(h.post(fields))
		require.Contains(t, h.open(w.Header().Get("Location")).byID("result"), "is deleted", "the name alone makes no partition")
	})
}

// A backend without a verb has no button, and the page says why.
func TestButtonsOfABackendWithoutVerbs(t *testing.T) {
	inBubble(t, func(t *testing.T, m *meter) {
		shop(t, m)
		h := change(t, lacking{m.Backend, m, m, m}, console.Options{})
		p := h.open("group?topic=orders&name=billing")
		require.False(t, p.has("pause"))
		require.True(t, p.has("reset"))
		require.Contains(t, p.text, "This backend cannot: pause, resume.")
		p = h.open("letters?topic=orders.dlq")
		require.False(t, p.has("discard"))
		require.Contains(t, p.text, "This backend cannot: redrive, discard.")
		code, _ := h.answer("confirm?verb=discard&topic=orders.dlq")
		require.Equal(t, 501, code)
	})
}

// A lacking backend can neither pause groups nor remove messages.
type lacking struct {
	backend.Backend
	backend.Admin
	backend.Statser
	backend.Reader
}
