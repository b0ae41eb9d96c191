package middleware_test

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
	"github.com/seed41896749/eventbus/store"
)

// The wrappers for handlers do their work in each of their 720 orders.
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
	for names := range orders(slices.Sorted(maps.Keys(wrappers))) {
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
