package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
)

var errBroken = errors.New("broken")

// with returns a bus with ms.
func with(t *testing.T, ms ...eventbus.Middleware) *eventbustest.Bus {
	t.Helper()
	return eventbustest.NewWith(t, eventbus.Options{Middleware: ms})
}

// subscribe makes h the only member of g, without random delays.
func subscribe(t *testing.T, bus *eventbustest.Bus, h eventbus.Handler) *eventbus.Subscription {
	t.Helper()
	s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Retry: eventbus.Retry{MaxAttempts: 3, Jitter: -1}}, h)
	require.NoError(t, err)
	return s
}

func TestDedupeMarksAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Dedupe(middleware.NewDedupeMemory(middleware.DedupeMemoryOptions{}), middleware.DedupeOptions{}))
		runs := map[string]int{}
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if runs[d.ID]++; d.ID == "fails once" && runs[d.ID] == 1 || d.ID == "fails" {
				return errBroken
			}
			return nil
		})
		for range 3 { // without keys, so a failed event does not delay the others
			for _, id := range []string{"good", "fails once", "fails"} {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
			}
			require.NoError(t, bus.WaitIdle(t.Context()))
		}
		require.Equal(t, map[string]int{"good": 1, "fails once": 2, "fails": 9}, runs)
		require.EqualValues(t, 4, s.Counts().Discarded, "each duplicate is counted")
	})
}

func TestDedupeSeparatesGroupsTopicsAndIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byHeader := func(d *eventbus.Delivery) string { return d.Headers.Get("request") }
		bus := with(t, middleware.Dedupe(middleware.NewDedupeMemory(middleware.DedupeMemoryOptions{}), middleware.DedupeOptions{ID: byHeader}))
		var mu sync.Mutex
		runs := map[string]int{}
		for _, topic := range []string{"a", "b"} {
			for _, group := range []string{"x", "y"} {
				_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: group}, func(_ context.Context, d *eventbus.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs[d.Topic+d.Group+d.Headers.Get("request")]++
					return nil
				})
				require.NoError(t, err)
			}
			for range 2 {
				require.NoError(t, bus.Publish(t.Context(), topic,
					&eventbus.Event{Headers: eventbus.Headers{{Name: "request", Value: "1"}}}, &eventbus.Event{}))
			}
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, map[string]int{"ax1": 1, "ay1": 1, "bx1": 1, "by1": 1, "ax": 2, "ay": 2, "bx": 2, "by": 2}, runs)
	})
}

// brokenDedupe is a store that fails.
type brokenDedupe struct{ handled, mark error }

func (b *brokenDedupe) Handled(context.Context, string) (bool, error) { return false, b.handled }
func (b *brokenDedupe) Mark(context.Context, string) error            { return b.mark }

func TestDedupeWithABrokenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &brokenDedupe{handled: errBroken}
		var told []error
		bus := with(t, middleware.Dedupe(store, middleware.DedupeOptions{
			OnError: func(_ context.Context, d *eventbus.Delivery, err error) {
				told = append(told, fmt.Errorf("%s: %w", d.ID, err))
			},
		}))
		runs := 0
		subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { runs++; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Zero(t, runs)
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 1, "an event that cannot be looked up is retried, and then kept")
		require.Equal(t, `eventbus: dedupe: look up "orders/g/1": broken`, dead[0].Headers.Get("eventbus-dead-error"))

		store.handled, store.mark = nil, errBroken
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "2"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 1, runs, "an event that cannot be marked has succeeded")
		require.Len(t, told, 1)
		require.EqualError(t, told[0], `2: eventbus: dedupe: mark "orders/g/2": broken`)
	})
}

// A ManualHandler returns before its event is handled.
func TestDedupeLeavesManualDeliveriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Dedupe(middleware.NewDedupeMemory(middleware.DedupeMemoryOptions{}), middleware.DedupeOptions{}))
		runs := 0
		_, err := bus.SubscribeManual(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Timeout: time.Second},
			func(_ context.Context, d *eventbus.ManualDelivery) error {
				if runs++; runs == 1 {
					return nil // and it is never settled: it fails after the timeout
				}
				go func() { _ = d.Ack(context.WithoutCancel(t.Context())) }()
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 2, runs, "the event was not handled by the first call")
	})
}

func TestDedupeMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := middleware.NewDedupeMemory(middleware.DedupeMemoryOptions{Max: 2, Age: time.Minute})
		handled := func(key string) bool {
			ok, err := m.Handled(t.Context(), key)
			require.NoError(t, err)
			return ok
		}
		for _, key := range []string{"a", "b", "a", "c"} { // b was marked first
			require.NoError(t, m.Mark(t.Context(), key))
		}
		require.True(t, handled("a"))
		require.False(t, handled("b"), "more than Max")
		time.Sleep(time.Minute)
		require.False(t, handled("a"), "older than Age")
		require.NoError(t, m.Mark(t.Context(), "d"))
		require.True(t, handled("d"))
	})
}

func TestThrottleLimitsEachBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(2, middleware.ThrottleOptions{
			Burst: 3, Bucket: func(d *eventbus.Delivery) string { return d.Type },
		}))
		start := time.Now()
		var mu sync.Mutex
		began := map[string][]time.Duration{}
		s, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 50},
			func(_ context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				began[d.Type] = append(began[d.Type], time.Since(start).Round(time.Millisecond))
				return nil
			})
		require.NoError(t, err)
		for range 6 {
			for _, tenant := range []string{"blue", "red", ""} {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: tenant}))
			}
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		const half = time.Second / 2
		want := []time.Duration{0, 0, 0, half, 2 * half, 3 * half}
		require.Equal(t, map[string][]time.Duration{"blue": want, "red": want, "": {0, 0, 0, 0, 0, 0}}, began)
		require.EqualValues(t, 18, s.Counts().Received, "waiting costs no redelivery")
	})
}

func TestThrottleSnoozesBeyondTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(0.01, middleware.ThrottleOptions{}))
		start := time.Now()
		var attempts []int
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			attempts = append(attempts, d.Attempt)
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []int{1, 1}, attempts)
		require.GreaterOrEqual(t, time.Since(start), 100*time.Second)
		require.EqualValues(t, 3, s.Counts().Received)
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

func TestThrottleEndsWithTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.Throttle(0.1, middleware.ThrottleOptions{}))
		runs := 0
		s := subscribe(t, bus, func(context.Context, *eventbus.Delivery) error { runs++; return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}, &eventbus.Event{}))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_ = s.Drain(ctx)
		require.Less(t, time.Since(start), 3*time.Second)
		require.Equal(t, 1, runs)
		require.Empty(t, bus.Published("orders.dlq"))
	})
}

func TestThrottleForgetsTheBucketUnusedForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := middleware.Throttle(1, middleware.ThrottleOptions{
			MaxBuckets: 2, Bucket: func(d *eventbus.Delivery) string { return d.Type },
		})(func(context.Context, *eventbus.Delivery) error { return nil })
		wait := func(bucket string) time.Duration {
			start := time.Now()
			require.NoError(t, h(t.Context(), &eventbus.Delivery{Event: eventbus.Event{Type: bucket}}))
			return time.Since(start).Round(time.Millisecond)
		}
		require.Zero(t, wait("a"))
		require.Zero(t, wait("b"))
		require.Equal(t, time.Second, wait("a"), "a is remembered, and was used last")
		require.Zero(t, wait("c"), "b is forgotten for c")
		require.Equal(t, time.Second, wait("a"))
		require.Zero(t, wait("b"), "forgotten")
	})
}

func TestIgnoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := with(t, middleware.IgnoreErrors(middleware.Is(errBroken, context.Canceled), middleware.As[*eventbus.FieldError]()))
		results := map[string]error{
			"Is": fmt.Errorf("wrapped: %w", errBroken), "permanent": eventbus.Permanent(errBroken),
			"As": fmt.Errorf("wrapped: %w", &eventbus.FieldError{}), "other": eventbus.Permanent(errors.New("other")),
		}
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if d.ID == "panic" {
				panic(errBroken)
			}
			return results[d.ID]
		})
		for _, id := range []string{"Is", "permanent", "As", "other", "panic"} {
			require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id}))
		}
		require.NoError(t, bus.WaitIdle(t.Context()))
		var dead []string
		for _, e := range bus.Published("orders.dlq") {
			letter, _ := eventbus.DeadLetterOf(&e)
			dead = append(dead, letter.ID)
		}
		require.Equal(t, []string{"other", "panic"}, dead)
		require.EqualValues(t, 1+3, s.Counts().Failures, "one permanent failure, three attempts that panic")
	})
}

func TestValidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filled := func(e *eventbus.Event) error {
			if len(e.Payload) == 0 {
				return errors.New("the payload is empty")
			}
			return nil
		}
		refuse := func(*eventbus.Event) error { return errors.New("unknown") }
		bus := with(t, middleware.Validate(map[string]middleware.Check{"order": filled}, refuse))
		var handled []string
		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error { handled = append(handled, d.ID); return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders",
			&eventbus.Event{ID: "good", Type: "order", Payload: []byte("x")}, &eventbus.Event{ID: "empty", Type: "order"}, &eventbus.Event{ID: "other"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, []string{"good"}, handled)
		dead := bus.Published("orders.dlq")
		require.Len(t, dead, 2)
		for i, want := range []string{`eventbus: invalid event of type "order": the payload is empty`, `eventbus: invalid event of type "": unknown`} {
			letter, _ := eventbus.DeadLetterOf(&dead[i])
			require.Equal(t, eventbus.ReasonPermanent, letter.Reason)
			require.Equal(t, 1, letter.Attempts, "no retry")
			require.Equal(t, want, letter.Error)
		}

		accepts := middleware.Validate(nil, nil)(func(context.Context, *eventbus.Delivery) error { return errBroken })
		require.Equal(t, errBroken, accepts(t.Context(), &eventbus.Delivery{}))
	})
}

func TestSetUpMistakesPanic(t *testing.T) {
	for want, f := range map[string]func(){
		"eventbus: Dedupe: the store is nil":                                               func() { middleware.Dedupe(nil, middleware.DedupeOptions{}) },
		"eventbus: NewDedupeMemory: Max or Age is negative":                                func() { middleware.NewDedupeMemory(middleware.DedupeMemoryOptions{Max: -1}) },
		"eventbus: Throttle: the rate must be positive, Burst and MaxBuckets not negative": func() { middleware.Throttle(0, middleware.ThrottleOptions{}) },
		"eventbus: Audit: the publisher is nil":                                            func() { middleware.Audit(nil, "audit", middleware.AuditOptions{}) },
		`eventbus: Validate: the check of "order" is nil`:                                  func() { middleware.Validate(map[string]middleware.Check{"order": nil}, nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// audited returns a bus that publishes its audit to itself.
func audited(t *testing.T, o middleware.AuditOptions, publish func(eventbus.Publisher) eventbus.Publisher) *eventbustest.Bus {
	t.Helper()
	var bus *eventbustest.Bus
	bus = with(t, middleware.Audit(publish(eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		return bus.Publish(ctx, topic, events...)
	})), "audit", o))
	return bus
}

func itself(p eventbus.Publisher) eventbus.Publisher { return p }

func records(t *testing.T, bus *eventbustest.Bus) (rs []middleware.AuditRecord) {
	t.Helper()
	topic := eventbus.Topic[middleware.AuditRecord]{Name: "audit", Type: middleware.AuditType}
	for _, e := range bus.Published("audit") {
		r, err := topic.Decode(&e)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	return rs
}

func TestAuditRecordsEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		start := time.Now().UTC()
		subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
			time.Sleep(3 * time.Second)
			d.ID = "changed by the handler"
			switch d.Attempt {
			case 1:
				return errBroken
			case 2:
				panic("boom")
			}
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1", Type: "order", Payload: []byte("secret")}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		record := func(attempt int, began time.Duration, outcome middleware.AuditOutcome, err string) middleware.AuditRecord {
			return middleware.AuditRecord{
				Topic: "orders", Group: "g", ID: "1", Type: "order", Attempt: attempt,
				Began: start.Add(began), Took: 3 * time.Second, Outcome: outcome, Error: err,
			}
		}
		got := records(t, bus)
		for i := range got {
			got[i].Began = got[i].Began.Round(time.Second)
		}
		require.Equal(t, []middleware.AuditRecord{
			record(1, 0, middleware.AuditFailure, "broken"),
			record(2, 4*time.Second, middleware.AuditPanic, ""),
			record(3, 9*time.Second, middleware.AuditSuccess, ""),
		}, got)
		require.NotContains(t, string(bus.Published("audit")[0].Payload), "secret")
	})
}

func TestAuditOfOtherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		_, err := bus.SubscribeManual(t.Context(), "manual", eventbus.SubscribeOptions{Group: "manual"},
			func(_ context.Context, d *eventbus.ManualDelivery) error {
				go func() { _ = d.Ack(context.WithoutCancel(t.Context())) }()
				return nil
			})
		require.NoError(t, err)
		require.NoError(t, bus.Publish(t.Context(), "manual", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		synctest.Wait()
		require.Len(t, records(t, bus), 1)
		require.Equal(t, middleware.AuditHeld, records(t, bus)[0].Outcome)

		subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			if d.Attempt == 1 {
				runtime.Goexit()
			}
			return errors.New(strings.Repeat("long ", 2<<10))
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		got := records(t, bus)[1:]
		require.Len(t, got, 3)
		require.Equal(t, middleware.AuditPanic, got[0].Outcome)
		require.Len(t, got[1].Error, 4<<10)
	})
}

func TestAFailingAuditFailsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		o := middleware.AuditOptions{OnError: func(_ context.Context, d *eventbus.Delivery, err error) {
			told = append(told, d.ID+": "+err.Error())
		}}
		bus := audited(t, o, func(eventbus.Publisher) eventbus.Publisher {
			return eventbus.PublisherFunc(func(ctx context.Context, _ string, _ ...*eventbus.Event) error {
				<-ctx.Done() // a broker that does not answer
				return context.Cause(ctx)
			})
		})
		start := time.Now()
		s := subscribe(t, bus, func(_ context.Context, d *eventbus.Delivery) error {
			d.ID = "changed by the handler"
			return nil
		})
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: "1"}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Equal(t, 5*time.Second, time.Since(start).Round(time.Second))
		require.Zero(t, s.Counts().Failures)
		require.Equal(t, []string{"1: eventbus: audit: eventbus: audit: AuditOptions.Timeout is over"}, told)
	})
}

// A handler of records that fails must not make records, or their number grows for ever.
func TestAuditDoesNotAuditItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		fail := func(context.Context, *eventbus.Delivery) error { return eventbus.Permanent(errBroken) }
		for _, topic := range []string{"audit", "audit.dlq", "orders"} {
			_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g", DeadLetter: topic + ".dlq"}, fail)
			require.NoError(t, err)
		}
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, records(t, bus), 1)
		require.Len(t, bus.Published("audit.dlq.dlq"), 1)
	})
}

// The end of the handler's time does not prevent the record, the mark or the warning.
func TestAuditAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := audited(t, middleware.AuditOptions{}, itself)
		subscribe(t, bus, func(ctx context.Context, _ *eventbus.Delivery) error { <-ctx.Done(); return nil })
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{}))
		require.NoError(t, bus.WaitIdle(t.Context()))
		require.Len(t, records(t, bus), 1)
		require.Equal(t, time.Minute, records(t, bus)[0].Took)
	})
}
