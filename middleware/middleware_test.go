package middleware_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/store"
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

func TestSetUpMistakesPanic(t *testing.T) {
	for want, f := range map[string]func(){
		"eventbus: Dedupe: the store is nil":                                               func() { middleware.Dedupe(nil, middleware.DedupeOptions{}) },
		"eventbus: Dedupe: Age is negative":                                                func() { middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{Age: -1}) },
		"eventbus: Throttle: the rate must be positive, Burst and MaxBuckets not negative": func() { middleware.Throttle(0, middleware.ThrottleOptions{}) },
		"eventbus: Audit: Timeout is negative":                                             func() { middleware.Audit(eventbustest.New(t), "audit", middleware.AuditOptions{Timeout: -1}) },
		"eventbus: Audit: the publisher is nil":                                            func() { middleware.Audit(nil, "audit", middleware.AuditOptions{}) },
		`eventbus: Validate: the check of "order" is nil`:                                  func() { middleware.Validate(map[string]middleware.Check{"order": nil}, nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// The wrappers for handlers work in any order. All 720 take five seconds under -race, so the test
// runs enough of them that any four wrappers meet in each of their orders.
func TestWrappersWorkInEveryOrder(t *testing.T) {
	records := 0
	audit := eventbus.PublisherFunc(func(context.Context, string, ...*eventbus.Event) error {
		records++
		return nil
	})
	wrappers := map[string]func() eventbus.Middleware{
		"audit": func() eventbus.Middleware { return middleware.Audit(audit, "audit", middleware.AuditOptions{}) },
		"dedupe": func() eventbus.Middleware {
			return middleware.Dedupe(store.NewMemory(store.MemoryOptions{}), middleware.DedupeOptions{})
		},
		"throttle": func() eventbus.Middleware { return middleware.Throttle(1000, middleware.ThrottleOptions{}) },
		"ignore":   func() eventbus.Middleware { return middleware.IgnoreErrors(middleware.Is(io.EOF)) },
		"validate": func() eventbus.Middleware {
			return middleware.Validate(map[string]middleware.Check{"invalid": func(*eventbus.Event) error { return errBroken }}, nil)
		},
		"timeout": func() eventbus.Middleware { return middleware.Timeout(map[string]time.Duration{"slow": time.Second}) },
	}
	for names := range coveringOrders(slices.Sorted(maps.Keys(wrappers)), 4) {
		synctest.Test(t, func(t *testing.T) {
			var ms []eventbus.Middleware
			for _, name := range names {
				ms = append(ms, wrappers[name]())
			}
			runs := map[string]int{}
			records = 0
			bus := with(t, ms...)
			subscribe(t, bus, func(ctx context.Context, d *eventbus.Delivery) error {
				runs[d.ID]++
				switch d.ID {
				case "ignored":
					return io.EOF
				case "fails":
					return errBroken
				case "slow":
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			for _, id := range []string{"good", "good", "invalid", "ignored", "fails", "slow"} {
				require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: id, Type: id}))
				require.NoError(t, bus.WaitIdle(t.Context()))
			}
			require.Positive(t, records)
			order := strings.Join(names, ", ")
			require.Equal(t, map[string]int{"good": 1, "ignored": 1, "fails": 3, "slow": 3}, runs, order)
			var dead []string
			for _, e := range bus.Published("orders.dlq") {
				dead = append(dead, e.Type)
			}
			require.Equal(t, []string{"invalid", "fails", "slow"}, dead, order)
		})
	}
}

// coveringOrders yields orders of names in which, together, any n of them occur in each of their
// orders.
func coveringOrders(names []string, n int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		seen := map[string]bool{}
		for order := range orders(names) {
			before := len(seen)
			for some := range subsequences(order, n) {
				seen[strings.Join(some, " ")] = true
			}
			if len(seen) > before && !yield(order) {
				return
			}
		}
	}
}

// subsequences yields each n of names, in their order.
func subsequences(names []string, n int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		if n == 0 {
			yield(nil)
			return
		}
		for i, first := range names {
			for rest := range subsequences(names[i+1:], n-1) {
				if !yield(append([]string{first}, rest...)) {
					return
				}
			}
		}
	}
}

// orders yields each order of names.
func orders(names []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		if len(names) == 0 {
			yield(nil)
			return
		}
		for i, first := range names {
			for rest := range orders(slices.Delete(slices.Clone(names), i, i+1)) {
				if !yield(append([]string{first}, rest...)) {
					return
				}
			}
		}
	}
}
