package middleware_test

import (
	"errors"
	"testing"

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
