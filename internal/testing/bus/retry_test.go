package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

var errDeclined = errors.New("declined")

// A ledger records the runs of each event, and how it ended.
type ledger struct {
	mu   sync.Mutex
	runs map[string][]time.Duration // by ID: when, since the start
	fate map[string]string          // by ID: the reason, and the class
	from time.Time
}

// failing runs a subscription of the topic t with the handler fail.
func failing(t *testing.T, o eventbus.Options, so eventbus.SubscribeOptions, fail func(d *eventbus.Delivery) error) (*eventbus.Bus, *ledger) {
	l := &ledger{runs: map[string][]time.Duration{}, fate: map[string]string{}, from: time.Now()}
	settled := func(id, how, reason string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fate[id] = how + " " + reason
	}
	o.Observer = observer.Observer{
		DeadLettered: func(e observer.DeadLettered) { settled(e.ID, "dead-lettered", e.Reason) },
		Discarded:    func(e observer.Discarded) { settled(e.ID, "discarded", e.Reason) },
		LeaseLost:    func(e observer.LeaseLost) { settled(e.ID, "lost", e.Err.Error()) },
	}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.Background())) }) //nolint:usetesting // its context has ended
	so.Group = "g"
	_, err = bus.Subscribe(t.Context(), "t", so, func(_ context.Context, d *eventbus.Delivery) error {
		l.mu.Lock()
		l.runs[d.ID] = append(l.runs[d.ID], time.Since(l.from))
		l.mu.Unlock()
		return fail(d)
	})
	require.NoError(t, err)
	return bus, l
}

// fates returns the end of each event.
func (l *ledger) fates() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.fate)
}

func (l *ledger) ran(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Trim(fmt.Sprint(l.runs[id]), "[]")
}

func TestRulesByClassOfError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := eventbus.Retry{MaxAttempts: 3, Initial: time.Second, Max: 2 * time.Second, Jitter: -1, Rules: []eventbus.RetryRule{
			{Class: "declined", MaxAttempts: 1},
			{Class: "busy", MaxAttempts: 4, Initial: time.Minute, Max: time.Minute},
			{Class: "old", MaxAttempts: 2, Discard: true},
			{Class: "panic", MaxAttempts: 1}, // a panic is of the class any here
		}}
		classes := []eventbus.ErrorClass{
			{Name: "declined", Is: func(err error) bool { return errors.Is(err, errDeclined) }},
			{Name: "busy", Is: func(err error) bool { return errors.Is(err, io.ErrShortWrite) }},
			{Name: "old", Is: func(err error) bool { return errors.Is(err, io.EOF) }},
			{Name: "any", Is: func(error) bool { return true }},
		}
		bus, l := failing(t, eventbus.Options{ErrorClasses: classes}, eventbus.SubscribeOptions{Retry: retry}, func(d *eventbus.Delivery) error {
			switch d.ID {
			case "declined":
				return fmt.Errorf("charging: %w", errDeclined)
			case "busy":
				return io.ErrShortWrite
			case "old":
				return io.EOF
			case "panic":
				panic("bug")
			}
			return errors.New("other")
		})
		var classesOf sync.Map
		_, err := bus.Subscribe(t.Context(), "t.dlq", eventbus.SubscribeOptions{Group: "dead", DeadLetter: eventbus.DiscardDeadLetters}, func(_ context.Context, d *eventbus.Delivery) error {
			dead, _ := eventbus.DeadLetterOf(&d.Event)
			classesOf.Store(dead.ID, dead.ErrorClass)
			return nil
		})
		require.NoError(t, err)
		for _, id := range []string{"declined", "busy", "old", "panic", "other"} {
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: id}))
		}
		time.Sleep(time.Hour)
		for id, want := range map[string][3]string{
			"declined": {"0s", "dead-lettered exhausted", "declined"},
			"busy":     {"0s 1m0s 2m0s 3m0s", "dead-lettered exhausted", "busy"},
			"old":      {"0s 1s", "discarded exhausted", "<nil>"},
			"panic":    {"0s 1s 3s", "dead-lettered exhausted", "any"},
			"other":    {"0s 1s 3s", "dead-lettered exhausted", "any"},
		} {
			class, _ := classesOf.Load(id)
			require.Equal(t, want, [3]string{l.ran(id), l.fates()[id], fmt.Sprint(class)}, id)
		}
	})
}

// A panic and a timeout have classes of their own, if no other class matches.
func TestRulesOfPanicAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := eventbus.Retry{MaxAttempts: 3, Initial: time.Second, Jitter: -1, Rules: []eventbus.RetryRule{
			{Class: "panic", MaxAttempts: 1}, {Class: "timeout", MaxAttempts: 2, Initial: time.Hour},
		}}
		bus, l := failing(t, eventbus.Options{Timeout: time.Second}, eventbus.SubscribeOptions{Retry: retry, Concurrency: 2}, func(d *eventbus.Delivery) error {
			if d.ID == "panic" {
				panic("bug")
			}
			time.Sleep(time.Minute)
			return errors.New("too late")
		})
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "panic"}, &eventbus.Event{ID: "slow"}))
		time.Sleep(3 * time.Hour)
		require.Equal(t, "0s", l.ran("panic"))
		require.Equal(t, "0s 1h0m6s", l.ran("slow"))
	})
}

// Event.Retry is stored with the event. A rule for the class of the error overrides it.
func TestRetryOfAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := eventbus.Retry{MaxAttempts: 2, Initial: time.Second, Jitter: -1, Rules: []eventbus.RetryRule{{Class: "declined", MaxAttempts: 1}}}
		classes := []eventbus.ErrorClass{{Name: "declined", Is: func(err error) bool { return errors.Is(err, errDeclined) }}}
		var mu sync.Mutex
		last := map[string][]bool{}
		bus, l := failing(t, eventbus.Options{ErrorClasses: classes}, eventbus.SubscribeOptions{Retry: retry}, func(d *eventbus.Delivery) error {
			mu.Lock()
			last[d.ID] = append(last[d.ID], d.LastAttempt())
			mu.Unlock()
			if d.ID == "declined" {
				return errDeclined
			}
			return errors.New("no")
		})
		require.NoError(t, bus.Publish(t.Context(), "t",
			&eventbus.Event{ID: "plain"},
			&eventbus.Event{ID: "more", Retry: &eventbus.RetryRule{MaxAttempts: 4, Initial: time.Minute, Max: 2 * time.Minute}},
			&eventbus.Event{ID: "once", Retry: &eventbus.RetryRule{MaxAttempts: 1, Discard: true}},
			&eventbus.Event{ID: "declined", Retry: &eventbus.RetryRule{MaxAttempts: 9}},
		))
		time.Sleep(time.Hour)
		require.Equal(t, "0s 1s", l.ran("plain"))
		require.Equal(t, "0s 1m0s 3m0s 5m0s", l.ran("more"))
		require.Equal(t, "0s", l.ran("once"))
		require.Equal(t, "0s", l.ran("declined"))
		require.Equal(t, map[string]string{
			"plain": "dead-lettered exhausted", "more": "dead-lettered exhausted", "once": "discarded exhausted", "declined": "dead-lettered exhausted",
		}, l.fates())
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []bool{false, true}, last["plain"])
		require.Equal(t, []bool{false, false, false, true}, last["more"])
		require.Equal(t, []bool{true}, last["once"])
	})
}

// If Retry.Delay or an ErrorClass panics, the delay is a second, and the limits that are known
// hold.
func TestPanicOfDelayKeepsTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		classes := []eventbus.ErrorClass{{Name: "declined", Is: func(err error) bool {
			if errors.Is(err, errDeclined) {
				panic("a bug in Is")
			}
			return false
		}}}
		retry := eventbus.Retry{MaxAttempts: 4, Rules: []eventbus.RetryRule{{Class: "panic", MaxAttempts: 2}}, Delay: func(*eventbus.Delivery, error) time.Duration {
			panic("a bug in Delay")
		}}
		bus, l := failing(t, eventbus.Options{ErrorClasses: classes}, eventbus.SubscribeOptions{Retry: retry}, func(d *eventbus.Delivery) error {
			switch d.ID {
			case "by class":
				panic("a bug of the handler")
			case "no class":
				return errDeclined
			}
			return errors.New("no")
		})
		own := &eventbus.RetryRule{MaxAttempts: 3, Discard: true}
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "by class"}, &eventbus.Event{ID: "no class", Retry: own}, &eventbus.Event{ID: "own", Retry: own}))
		time.Sleep(time.Hour)
		require.Equal(t, "0s 1s", l.ran("by class"))
		require.Equal(t, "0s 1s 2s", l.ran("no class"))
		require.Equal(t, "0s 1s 2s", l.ran("own"))
		require.Equal(t, map[string]string{
			"by class": "dead-lettered exhausted", "no class": "discarded exhausted", "own": "discarded exhausted",
		}, l.fates())
	})
}

// An event that asks for many attempts is not taken for a poison event.
func TestRetryOfAnEventForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, l := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{Retry: eventbus.Retry{MaxAttempts: 1}}, func(d *eventbus.Delivery) error {
			if d.Attempt < 50 {
				return errors.New("no")
			}
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "x", Retry: &eventbus.RetryRule{MaxAttempts: -1, Initial: time.Second, Max: time.Second}}))
		time.Sleep(time.Hour)
		require.Len(t, strings.Fields(l.ran("x")), 50)
		require.Empty(t, l.fates())
	})
}

// Event.Retry does not change the retries of the event's dead letter. Without MaxAttempts
// in it, an event keeps the unlimited attempts of its subscription.
func TestRetryOfAnEventIsForItsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retry := eventbus.Retry{MaxAttempts: -1, Initial: time.Second, Max: time.Second, Jitter: -1}
		bus, l := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{Retry: retry}, func(d *eventbus.Delivery) error {
			if d.ID == "once" || d.Attempt < 50 {
				return errors.New("no")
			}
			return nil
		})
		var mu sync.Mutex
		var letters []int
		_, err := bus.Subscribe(t.Context(), "t.dlq", eventbus.SubscribeOptions{Group: "dead", DeadLetter: "hopeless", Retry: eventbus.Retry{Initial: time.Second}}, func(_ context.Context, d *eventbus.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			letters = append(letters, d.Attempt)
			if d.Retry != nil || d.Attempt < 3 {
				return errors.New("no")
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "t",
			&eventbus.Event{ID: "many", Retry: &eventbus.RetryRule{Initial: 2 * time.Second, Max: 2 * time.Second}},
			&eventbus.Event{ID: "once", Retry: &eventbus.RetryRule{MaxAttempts: 1}},
		))
		time.Sleep(time.Hour)
		require.Len(t, strings.Fields(l.ran("many")), 50)
		require.Equal(t, map[string]string{"once": "dead-lettered exhausted"}, l.fates())
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []int{1, 2, 3}, letters)
	})
}

// Twelve attempts take about 27 minutes.
func TestDefaultRetryTakesTwentySevenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, l := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{Retry: eventbus.Retry{Jitter: -1}}, func(*eventbus.Delivery) error { return errors.New("no") })
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "x"}))
		time.Sleep(time.Hour)
		runs := strings.Fields(l.ran("x"))
		require.Len(t, runs, 12)
		require.Equal(t, "27m3s", runs[11])
		require.Equal(t, "dead-lettered exhausted", l.fates()["x"])
	})
}

// The delays after a failed attempt differ, and none is outside the jitter, even after so many
// attempts that a doubling without a bound would overflow.
func TestRetryStaysWithinItsJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration // after the third attempt
		var longest time.Duration
		bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Observer{Retried: func(e observer.Retried) {
			if longest = max(longest, e.After); e.Attempt == 3 {
				delays = append(delays, e.After)
			}
		}}})
		o := eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: -1}}
		_, err := bus.Subscribe(t.Context(), "t", o, func(_ context.Context, d *eventbus.Delivery) error {
			if d.Attempt == 4 && d.ID != "x" || d.Attempt == 101 {
				return nil
			}
			return errors.New("no")
		})
		require.NoError(t, err)
		for range 1000 {
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
		}
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "x"}))
		time.Sleep(100 * 12 * time.Minute)
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Len(t, delays, 1001)
		require.GreaterOrEqual(t, slices.Min(delays), 3200*time.Millisecond)
		require.LessOrEqual(t, slices.Max(delays), 4800*time.Millisecond)
		require.Greater(t, longest, 11*time.Minute)
		require.LessOrEqual(t, longest, 12*time.Minute, "no overflow")
	})
}
