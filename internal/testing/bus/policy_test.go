package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

func TestExpiredEventsDoNotRun(t *testing.T) {
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			so := eventbus.SubscribeOptions{DeadLetterExpired: keep, Retry: eventbus.Retry{Initial: 10 * time.Second, Jitter: -1}}
			var ttl atomic.Int64
			bus, l := failing(t, eventbus.Options{}, so, func(d *eventbus.Delivery) error {
				ttl.Store(int64(d.TTL))
				return errors.New("no")
			})
			now := time.Now()
			require.NoError(t, bus.Publish(t.Context(), "t",
				&eventbus.Event{ID: "late", TTL: time.Minute, Time: now.Add(-time.Hour)},
				&eventbus.Event{ID: "retried", TTL: 25 * time.Second},
			))
			time.Sleep(time.Hour)
			require.Empty(t, l.ran("late"))
			require.Equal(t, "0s 10s", l.ran("retried"), "the third attempt, at 30s, is too late")
			require.Equal(t, 25*time.Second, time.Duration(ttl.Load()))
			want := "discarded expired"
			if keep {
				want = "dead-lettered expired"
			}
			require.Equal(t, map[string]string{"late": want, "retried": want}, l.fates())
		})
	}
}

func TestLargeEventsDoNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, l := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{MaxReceive: 1000}, func(*eventbus.Delivery) error { return nil })
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "large", Payload: make([]byte, 1000)}, &eventbus.Event{ID: "small", Payload: make([]byte, 500)}))
		time.Sleep(time.Minute)
		require.Empty(t, l.ran("large"))
		require.Equal(t, "0s", l.ran("small"))
		require.Equal(t, map[string]string{"large": "dead-lettered too-large"}, l.fates())
	})
}

// OnDeadLetter is called for stored and for discarded dead letters. If it is slow or
// panics, other events do not wait.
func TestOnDeadLetter(t *testing.T) {
	for _, where := range []string{"", eventbus.DiscardDeadLetters} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var told []string
			so := eventbus.SubscribeOptions{DeadLetter: where, Retry: eventbus.Retry{MaxAttempts: 2, Initial: time.Second}, OnDeadLetter: func(e *eventbus.Event, why eventbus.DeadLetter) {
				mu.Lock()
				told = append(told, fmt.Sprint(e.ID, " ", string(e.Payload), " ", e.Headers, " ", why.Attempts, " ", why.Reason, " ", why.Error))
				mu.Unlock()
				time.Sleep(time.Hour)
				panic("a bug")
			}}
			bus, l := failing(t, eventbus.Options{}, so, func(*eventbus.Delivery) error { return errors.New("no") })
			h := eventbus.Headers{{Name: "h", Value: "v"}}
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "1", Payload: []byte("one"), Headers: h}, &eventbus.Event{ID: "2", Payload: []byte("two"), Headers: h}))
			time.Sleep(10 * time.Second)
			require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "3"}))
			time.Sleep(10 * time.Second)
			require.Len(t, strings.Fields(l.ran("3")), 2, "the callback holds up settlement")
			time.Sleep(9 * time.Hour)
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(told)
			require.Equal(t, []string{"1 one [{h v}] 2 exhausted no", "2 two [{h v}] 2 exhausted no", "3  [] 2 exhausted no"}, told)
		})
	}
}

// An event whose run timed out is redelivered when its lease has expired, and not sooner.
func TestLeaveTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		so := eventbus.SubscribeOptions{LeaveTimeouts: true, Lease: time.Minute, Retry: eventbus.Retry{Initial: time.Second}}
		bus, l := failing(t, eventbus.Options{Timeout: 10 * time.Second}, so, func(d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				time.Sleep(15 * time.Second)
				return errors.New("too late")
			}
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "x"}))
		time.Sleep(time.Hour)
		require.Equal(t, "0s 1m0s", l.ran("x"))
		require.Contains(t, l.fates()["x"], "lost")
	})
}

// The last attempt of an event ends with a dead letter, although it timed out.
func TestLastTimeoutIsNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		so := eventbus.SubscribeOptions{LeaveTimeouts: true, Lease: time.Minute, Retry: eventbus.Retry{MaxAttempts: 3}}
		bus, l := failing(t, eventbus.Options{Timeout: 10 * time.Second}, so, func(*eventbus.Delivery) error {
			time.Sleep(15 * time.Second)
			return errors.New("too late")
		})
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{ID: "x"}))
		time.Sleep(time.Hour)
		require.Equal(t, "0s 1m0s 2m0s", l.ran("x"))
		require.Equal(t, "dead-lettered exhausted", l.fates()["x"])
	})
}

// With AckOnReceive each attempt is the last one, because the event was acknowledged before.
func TestOnReceiveHasOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := make(chan bool, 1)
		bus, _ := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{Ack: eventbus.AckOnReceive}, func(d *eventbus.Delivery) error {
			last <- d.LastAttempt() && d.MaxAttempts == 1
			return errors.New("no")
		})
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{Retry: &eventbus.RetryRule{MaxAttempts: 5}}))
		require.True(t, <-last)
	})
}

func TestRefusedPolicies(t *testing.T) {
	is := func(error) bool { return true }
	for field, o := range map[string]eventbus.Options{
		"Options.ErrorClasses[0].Name": {ErrorClasses: []eventbus.ErrorClass{{Is: is}}},
		"Options.ErrorClasses[0].Is":   {ErrorClasses: []eventbus.ErrorClass{{Name: "a"}}},
		"Options.ErrorClasses[1].Name": {ErrorClasses: []eventbus.ErrorClass{{Name: "a", Is: is}, {Name: "a", Is: is}}},
	} {
		_, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
		var f *eventbus.FieldError
		require.ErrorAs(t, err, &f)
		require.Equal(t, field, f.Field)
	}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{ErrorClasses: []eventbus.ErrorClass{{Name: "known", Is: is}}})
	require.NoError(t, err)
	rules := func(rs ...eventbus.RetryRule) eventbus.SubscribeOptions {
		return eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{Rules: rs}}
	}
	for field, o := range map[string]eventbus.SubscribeOptions{
		"Retry.Rules[0].Class":       rules(eventbus.RetryRule{Class: "unknown"}),
		"Retry.Rules[1].Class":       rules(eventbus.RetryRule{Class: "known"}, eventbus.RetryRule{Class: "known"}),
		"Retry.Rules[0].MaxAttempts": rules(eventbus.RetryRule{Class: "known", MaxAttempts: -2}),
		"Retry.Rules[0].Initial":     rules(eventbus.RetryRule{Class: "known", Initial: -1}),
		"Retry.Rules[0].Max":         rules(eventbus.RetryRule{Class: "known", Initial: 2, Max: 1}),
		"DeadLetterOnReceive":        {Group: "g", DeadLetterOnReceive: true},
		"DeadLetterExpired":          {Group: "g", DeadLetterExpired: true, Ack: eventbus.AckOnReceive},
		"LeaveTimeouts":              {Group: "g", LeaveTimeouts: true, Retry: eventbus.Retry{Rules: []eventbus.RetryRule{{Class: "timeout", MaxAttempts: 2}}}},
	} {
		_, err := bus.Subscribe(t.Context(), "t", o, func(context.Context, *eventbus.Delivery) error { return nil })
		var f *eventbus.FieldError
		require.ErrorAs(t, err, &f, field)
		require.Equal(t, "SubscribeOptions."+field, f.Field)
	}
	for field, e := range map[string]*eventbus.Event{
		"events[0].TTL":               {TTL: -1},
		"events[0].Retry.Class":       {Retry: &eventbus.RetryRule{Class: "known"}},
		"events[0].Retry.MaxAttempts": {Retry: &eventbus.RetryRule{MaxAttempts: -2}},
	} {
		var f *eventbus.FieldError
		require.ErrorAs(t, bus.Publish(t.Context(), "t", e), &f)
		require.Equal(t, field, f.Field)
	}
}

// A handler that returns Snooze or Drop has not failed, in manual mode too.
func TestSnoozeAndDropAreNoFailures(t *testing.T) {
	quiet := observer.Observer{Failed: func(observer.Failed) {}}
	results := []error{eventbus.Snooze(time.Second), eventbus.Drop("not ours")}
	for _, manual := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bus := eventbustest.On(t, inmemory.New(inmemory.Options{}), eventbus.Options{Observer: quiet})
			runs := 0
			result := func() error { runs++; return results[runs%2] }
			o := eventbus.SubscribeOptions{Group: "g", Concurrency: 1}
			s, err := bus.Subscribe(t.Context(), "t", o, func(context.Context, *eventbus.Delivery) error { return result() })
			if manual {
				require.NoError(t, s.Drain(t.Context()))
				s, err = bus.SubscribeManual(t.Context(), "t", o, func(ctx context.Context, d *eventbus.ManualDelivery) error {
					return d.Nack(ctx, result())
				})
			}
			require.NoError(t, err)
			for range 100 {
				require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{}))
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			require.GreaterOrEqual(t, runs, 100)
			require.Zero(t, s.Counts().Failures)
			require.Zero(t, s.Counts().Retried)
			require.EqualValues(t, 100, s.Counts().Discarded)
			require.NoError(t, bus.Shutdown(t.Context()))
		})
	}
}

// An event that expired has not failed.
func TestExpiredEventsAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, _ := failing(t, eventbus.Options{}, eventbus.SubscribeOptions{}, func(*eventbus.Delivery) error { return nil })
		require.NoError(t, bus.Publish(t.Context(), "t", &eventbus.Event{TTL: time.Second, Time: time.Now().Add(-time.Hour)}))
		time.Sleep(time.Minute)
		for _, s := range bus.Subscriptions() {
			require.Zero(t, s.Counts().Failures)
			require.EqualValues(t, 1, s.Counts().Discarded)
		}
	})
}
