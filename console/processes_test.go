package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/presence"
)

// A removalBackend is the backend of a process that may die. Then nothing is removed anymore.
type removalBackend struct {
	stays
	dead atomic.Bool
}

func (m *removalBackend) Remove(ctx context.Context, topic string, positions []string) error {
	if m.dead.Load() {
		return backend.ErrUnavailable
	}
	return backend.Remove(ctx, m.Backend, topic, positions)
}

// announced starts a process with a member of orders/billing, or with a pattern. It ends with stop, or
// stands still from now on with fall.
func announced(t *testing.T, b backend.Backend, name, topic string, o eventbus.SubscribeOptions) (stop, fall func()) {
	t.Helper()
	return announcedWith(t, b, name, topic, o, func(context.Context, *eventbus.Delivery) error { return nil })
}

func announcedWith(t *testing.T, b backend.Backend, name, topic string, o eventbus.SubscribeOptions, h eventbus.Handler) (stop, fall func()) {
	t.Helper()
	own := &removalBackend{stays: stays{b}}
	bus := openBus(t, own, eventbus.Options{})
	o.Group = "billing"
	_, err := bus.Subscribe(t.Context(), topic, o, h)
	require.NoError(t, err)
	a, err := presence.New(t.Context(), bus, presence.Options{Instance: name, Version: "v1.2.3"})
	require.NoError(t, err)
	go func() { _ = a.ListenAndServe() }() // it returns nil
	stop = func() {
		require.NoError(t, a.Shutdown(context.WithoutCancel(t.Context())))
		end(t, bus)
	}
	fall = func() {
		own.dead.Store(true)
		require.NoError(t, a.Shutdown(t.Context())) // as after a kill, the note stays
		end(t, bus)
	}
	return stop, fall
}

// The pages show the processes that announce themselves, the settings in force of a group, and where
// members disagree.
func TestProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		v := visit(t, m, console.Options{})
		require.Contains(t, v.page("processes").text, "No process announces itself. Programs do so with package presence")
		require.Contains(t, v.page("group?topic=orders&name=billing").text, "No member announces itself, so the settings in effect are unknown.")

		stopA, _ := announced(t, m, "a", "orders", eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 3}, Concurrency: 4})
		stopB, _ := announced(t, m, "b", "others", eventbus.SubscribeOptions{})
		time.Sleep(20 * time.Second)
		group := v.page("group?topic=orders&name=billing")
		rows := group.cells("Members that announce themselves")
		require.Len(t, rows, 1)
		require.Equal(t, "a", rows[0]["Process"])
		require.Equal(t, "running", rows[0]["State"])
		require.Equal(t, "0 of 4", rows[0]["Running"])
		require.Equal(t, "v1.2.3", rows[0]["Version"])
		require.Empty(t, group.cells("Settings that differ between members"))
		agreed := map[string]string{}
		for _, row := range group.cells("Settings that all members share") {
			agreed[row["Setting"]] = row["Value"]
		}
		require.Equal(t, "3", agreed["Retry.MaxAttempts"])
		require.Equal(t, "by-key", agreed["Order"])
		require.NotContains(t, agreed, "Group")
		stopB()

		_, fall := announced(t, m, "c", ">", eventbus.SubscribeOptions{Concurrency: 4, DeadLetter: eventbus.DiscardDeadLetters})
		time.Sleep(20 * time.Second)
		group = v.page("group?topic=orders&name=billing")
		require.Len(t, group.cells("Members that announce themselves"), 2, "a member with a pattern is one")
		differ := map[string]string{}
		for _, row := range group.cells("Settings that differ between members") {
			differ[row["Setting"]+" of "+row["Processes"]] = row["Value"]
		}
		require.Equal(t, "3", differ["Retry.MaxAttempts of a"])
		require.Equal(t, "12", differ["Retry.MaxAttempts of c"])
		require.Equal(t, "(discard)", differ["DeadLetter of c"])
		require.Equal(t, "(topic).dlq", differ["DeadLetter of a"], "as of a member with a pattern")
		require.NotContains(t, differ, "Concurrency of a")

		fall()
		time.Sleep(time.Minute)
		group = v.page("group?topic=orders&name=billing")
		require.Contains(t, group.cells("Members that announce themselves")[1]["State"], "silent since")
		require.Empty(t, group.cells("Settings that differ between members"), "a silent process is not compared")
		all := v.page(v.page("").link("Processes")).cells("Processes that announce themselves")
		require.Equal(t, "alive", all[0]["State"])
		require.Equal(t, "silent", all[1]["State"])
		require.Equal(t, "billing of >: running", all[1]["Groups"])
		require.NotContains(t, v.page("").text, presence.Topic)

		m.fail(backend.ErrUnavailable)
		time.Sleep(time.Minute)
		_, body := v.answer("processes")
		require.Contains(t, body, "The broker does not respond.")
		m.fail(nil)
		stopA()
	})
}

// A group names the events that fail in its members, with their errors, and leads to them. A reset begins
// after such an event.
func TestFailingEventsAreNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		v := visit(t, m, console.Options{Allow: everything})
		o := eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: -1, Initial: time.Minute}}
		_, fall := announcedWith(t, m, "a", "orders", o, func(_ context.Context, d *eventbus.Delivery) error {
			if d.Type == "bad" {
				return errors.New("the tax rate of <XK> is missing")
			}
			return nil
		})
		shop := openBus(t, stays{m}, eventbus.Options{})
		require.NoError(t, shop.Publish(t.Context(), "orders", &eventbus.Event{ID: "o-1", Key: "ada", Type: "bad"}, &eventbus.Event{ID: "o-2", Key: "ada"}))
		end(t, shop)
		time.Sleep(30 * time.Second)
		group := v.page("group?topic=orders&name=billing")
		rows := group.cells("Failing events, as announced by the members")
		require.Len(t, rows, 1)
		require.Equal(t, "o-1", rows[0]["Event"])
		require.Equal(t, "ada", rows[0]["Key"])
		require.Equal(t, "1", rows[0]["Attempts"])
		require.Equal(t, "a", rows[0]["Process"])
		require.Equal(t, "the tax rate of <XK> is missing", rows[0]["Error"])
		found := v.page(group.link("o-1")).text
		require.Contains(t, found, "o-1")
		require.NotContains(t, found, "o-2")
		asked := v.page("confirm?verb=reset&topic=orders&name=billing&to=after+" + rows[0]["Position"])
		require.Contains(t, asked.text, "The group starts again after the position "+rows[0]["Position"])
		hides := visit(t, m, console.Options{Redact: func(string, *eventbus.Event) {}}).page("group?topic=orders&name=billing")
		require.Equal(t, rows[0]["Position"], hides.cells("Failing events, as announced by the members")[0]["Position"])
		for _, secret := range []string{"o-1", "ada", "tax rate"} {
			require.NotContains(t, hides.text, secret, "a note has not all of an event that Redact may need")
		}
		fall()
		time.Sleep(5 * time.Minute)
		require.Empty(t, v.page("group?topic=orders&name=billing").cells("Failing events, as announced by the members"), "of a silent process")
	})
}

// A group shows at most fifty events that fail, the next attempts, and says how many more there are.
func TestManyFailingEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		attach(t, m, "orders", "billing")
		shop := openBus(t, stays{m}, eventbus.Options{})
		for i := range 11 {
			p := presence.Process{ID: fmt.Sprint(i), Written: time.Now(), Every: time.Hour, Subscriptions: []presence.Subscription{{Topic: "orders", Group: "billing"}}}
			for n := range 5 {
				e := presence.Event{Topic: "orders", ID: fmt.Sprintf("e-%d-%d", i, n), Due: time.Now().Add(time.Hour - time.Duration(i)*time.Minute)}
				p.Subscriptions[0].Events = append(p.Subscriptions[0].Events, e)
			}
			payload, err := json.Marshal(p)
			require.NoError(t, err)
			require.NoError(t, shop.Publish(t.Context(), presence.Topic, &eventbus.Event{Type: presence.Type, Payload: payload}))
		}
		end(t, shop)
		v := visit(t, m, console.Options{})
		v.page("")
		time.Sleep(10 * time.Second)
		group := v.page("group?topic=orders&name=billing")
		rows := group.cells("Failing events, as announced by the members")
		require.Len(t, rows, 50)
		require.Equal(t, "e-10-0", rows[0]["Event"], "its next attempt is the first")
		require.Contains(t, group.text, "5 more events")
	})
}
