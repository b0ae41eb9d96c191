package console_test

import (
	"context"
	"errors"
	"net/http"
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
	"github.com/seed41896749/eventbus/presence"
)

// failing fails the events with an ID.
func failing(id string) eventbus.Handler {
	return func(_ context.Context, d *eventbus.Delivery) error {
		if d.ID == id {
			return errors.New("the tax rate is missing")
		}
		return nil
	}
}

// letterIn returns the one dead letter in a topic.
func letterIn(t *testing.T, b backend.Backend, topic string) *deadletter.Letter {
	t.Helper()
	letters, err := deadletter.Open(b, topic)
	require.NoError(t, err)
	var found []*deadletter.Letter
	for l, err := range letters.All(t.Context(), deadletter.Filter{}) {
		require.NoError(t, err)
		found = append(found, l)
	}
	require.Len(t, found, 1)
	return found[0]
}

// An event that fails in a group is made a dead letter from the page of the group. The page that asks
// shows it first, and the letter goes where the members send theirs.
func TestBuryAFailingEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		stop, _ := announcedWith(t, m, "a", "orders", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: -1, Initial: time.Minute, Max: time.Minute}, DeadLetter: "failed"}, failing("e-2"))
		defer stop()
		numbered(t, m, "orders", 5)
		time.Sleep(20 * time.Second)
		h := change(t, m, console.Options{})
		at := "group?topic=orders&name=billing"
		row := h.open(at).cells("Failing events")[0]
		require.Equal(t, "e-2", row["Event"])
		require.Equal(t, "the tax rate is missing", row["Error"])
		event := h.open(h.open(at).link("e-2"))
		require.Contains(t, event.text, "Event of orders")
		require.Regexp(t, "billing has failed 1 times \\(the tax rate is missing\\), with the next attempt at 2000-01-01 00:0.*: move to dead letters…", event.text)

		ask := h.open(h.open(at).link("Move to dead letters…"))
		require.Equal(t, ask.text, h.open(event.link("move to dead letters…")).text, "both links ask the same")
		require.Contains(t, ask.byID("event"), "ID e-2 Type type2 Key key2")
		require.Contains(t, ask.byID("ask"), "Group billing will not get the event again. A dead letter is stored in failed")
		stats, err := m.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.EqualValues(t, 1, stats.Unacked, "nothing is changed yet")

		p := h.submit(ask, "confirm", "why", "INC-7")
		require.Equal(t, "the event is now a dead letter in failed, and group billing will not get it again; later events of its key continue in about ten seconds", p.byID("result"))
		l := letterIn(t, m, "failed")
		require.Equal(t, 1, l.Attempts)
		require.Contains(t, h.open(p.link("Dead letters of billing")).text, "the tax rate is missing; taken away")
		require.Equal(t, "e-2", l.ID)
		require.Equal(t, eventbus.ReasonOperator, l.Reason)
		require.Equal(t, "the tax rate is missing; taken away by 192.0.2.1: INC-7", l.Error)
		stats, err = m.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Zero(t, stats.Unacked)

		require.Equal(t, "The group will not get it again.", h.open(at).cells("Failing events")[0]["Change"], "the member has not noticed yet")
		p = h.submit(ask, "confirm") // another visitor has the page still
		require.Regexp(t, "nothing has changed, because the group has settled|no longer exists|gone", p.text)
		letterIn(t, m, "failed")
	})
}

// An event of a partition is name the event by its partition, and has the rules of the whole topic.
func TestBuryInAPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		require.NoError(t, partition.Agree(t.Context(), m, "parts", 3))
		inner := partition.Topic("parts", 1)
		src := attach(t, m, inner, "g")
		numbered(t, m, inner, 2)
		ds, err := src.Receive(t.Context(), 2, 0)
		require.NoError(t, err)
		place := ds[0].Position
		var asked []console.Action
		h := change(t, m, console.Options{Allow: func(_ *http.Request, a console.Action) error {
			asked = append(asked, a)
			return nil
		}})
		h.open("")
		time.Sleep(20 * time.Second)
		ask := h.open(h.open("event?topic=" + inner + "&at=" + place).link("move to dead letters…"))
		require.Contains(t, ask.byID("event"), place+" in "+inner)
		p := h.submit(ask, "confirm")
		require.Contains(t, p.byID("result"), "the event is now a dead letter in parts.dlq")
		require.Equal(t, inner, letterIn(t, m, "parts.dlq").Topic, "a redrive goes to the partition")
		require.Equal(t, console.Action{Verb: console.Bury, Topic: "parts", Group: "g", Place: place, Partition: "1"}, asked[len(asked)-1])
		for url, want := range map[string]string{
			"confirm?verb=bury&topic=parts&name=g&at=" + place:                                                  "name the event by its partition",
			"confirm?verb=bury&topic=parts&name=g&partition=3&at=" + place:                                      "name the event by its partition",
			"confirm?verb=bury&topic=parts&name=g&partition=-1&at=" + place:                                     "is not a partition",
			"confirm?verb=bury&topic=" + inner + "&name=g&at=" + place:                                          "change the group there",
			"confirm?verb=bury&topic=parts&name=other&partition=1&at=" + place:                                  "has no group",
			"confirm?verb=bury&topic=parts&name=g&partition=1":                                                  "not the position",
			"confirm?verb=bury&topic=parts&name=g&partition=1&at=zzzz":                                          "message at zzzz",
			"confirm?verb=bury&topic=parts.dlq&name=g&at=" + place:                                              "has no group",
			"confirm?verb=bury&topic=parts&name=g&partition=1&why=" + strings.Repeat("x", 300) + "&at=" + place: "the reason is longer",
		} {
			code, body := h.answer(url)
			require.GreaterOrEqual(t, code, 400, url)
			require.Contains(t, parse(t, body).text, want, url)
		}
	})
}

// A visitor who may not bury sees no link, even if Redact hides the events.
func TestBuryIsNotOffered(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		stop, _ := announcedWith(t, m, "a", "orders", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: -1, Initial: time.Minute, Max: time.Minute}}, failing("e-2"))
		defer stop()
		numbered(t, m, "orders", 5)
		time.Sleep(20 * time.Second)
		at := "group?topic=orders&name=billing"
		require.Empty(t, visit(t, m, console.Options{}).page(at).link("Move to dead letters…"), "the pages only read")
		h := change(t, m, console.Options{Allow: func(_ *http.Request, a console.Action) error {
			if a.Verb == console.Bury {
				return errors.New("no")
			}
			return nil
		}})
		require.Empty(t, h.open(at).link("Move to dead letters…"))
		require.Empty(t, h.open(h.open(at).link("e-2")).link("move to dead letters…"))
		h = change(t, m, console.Options{Redact: func(_ string, e *eventbus.Event) { e.ID, e.Key, e.Payload = "hidden", "", nil }})
		require.Empty(t, h.open(at).link("e-2"))
		ask := h.open(h.open(at).link("Move to dead letters…"))
		require.Contains(t, ask.byID("event"), "ID hidden")
		require.NotContains(t, ask.text, "e-2")
		require.Contains(t, h.submit(ask, "confirm").byID("result"), "the event is now a dead letter in orders.dlq")
	})
}

// A topic that no group reads is deleted from its page. Others have no button, and are refused.
func TestDeleteATopic(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		numbered(t, m, "audit", 3)
		h := change(t, m, console.Options{})
		h.open("")
		time.Sleep(20 * time.Second)
		require.False(t, h.open("topic?name=orders").has("delete-topic"))
		require.False(t, h.open("topic?name=orders.dlq").has("delete-topic"), "its letters are discarded on their page")
		bury(t, m, "graveyard", "x", map[string]string{letter.Reason: "exhausted", letter.Group: "billing"})
		for _, name := range []string{"orders.later", "orders.later.token", "orders.lifecycle", presence.Topic, partition.FailedTopic("parts"), partition.NumberTopic("parts")} {
			numbered(t, m, name, 1)
		}
		h.open("letters?topic=graveyard")
		time.Sleep(20 * time.Second)
		for _, name := range []string{
			"orders", "orders.dlq", "graveyard", "orders.later", "orders.later.token", "orders.lifecycle", presence.Topic,
			partition.FailedTopic("parts"), partition.NumberTopic("parts"), partition.OwnersTopic("parts"), partition.Topic("parts", 0),
		} {
			code, body := h.answer("confirm?verb=delete-topic&topic=" + name)
			require.GreaterOrEqual(t, code, 400, "%s: %s", name, body)
		}
		ask := h.submit(h.open("topic?name=audit"), "delete-topic")
		topics, err := m.Topics(t.Context())
		require.NoError(t, err)
		require.Contains(t, topics, "audit", "nothing is changed yet")
		require.Equal(t, "3", ask.byID("comes"))
		require.Contains(t, ask.byID("last"), "The last event is from 2000-01-01 00:00:00.000 UTC.")
		attach(t, m, "audit", "late")
		require.Contains(t, h.submit(ask, "confirm").text, "1 group read audit: delete them first")
		require.NoError(t, m.DeleteGroup(t.Context(), "audit", "late"))
		require.Equal(t, "topic audit is deleted, with its events", h.submit(ask, "confirm").byID("result"))
		topics, err = m.Topics(t.Context())
		require.NoError(t, err)
		require.NotContains(t, topics, "audit")
	})
}

// A page that asks before a reset says how many events come, and refuses a place that is none.
func TestAskBeforeAReset(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		numbered(t, m, "orders", 3)
		h := change(t, m, console.Options{})
		ask := func(to string) page { return h.submit(h.open("group?topic=orders&name=billing"), "reset", "to", to) }
		require.Equal(t, "3", ask("earliest").byID("comes"))
		require.Equal(t, "0", ask("latest").byID("comes"))
		time.Sleep(time.Minute)
		numbered(t, m, "orders", 6000)
		require.Equal(t, "5 000 or more", ask("30s ago").byID("comes"))
		code, body := h.answer("confirm?verb=reset&topic=orders&name=billing&to=after+banana")
		require.Equal(t, 400, code, body)
	})
}

func TestChangeAGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
		require.Equal(t, "group billing of orders starts again at latest, and has 0 unsettled events", p.byID("result"))

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
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
			"confirm?verb=reset&topic=parts&name=g&to=7":     "each with its own positions",
			"confirm?verb=delete-group&topic=parts&name=g":   "whose ownership depends on the group",
			"confirm?verb=reset&topic=orders&name=nobody":    "the start is empty",
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
	inBubble(t, func(t *testing.T, m *countingBackend) {
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

// A group has a button for the change that is possible, and the state of its pause in the overview.
func TestPauseOrResume(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
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
