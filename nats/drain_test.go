package nats_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
)

// lull is the time for which a Receive waits for messages that are under way.
const lull = 40 * time.Millisecond

// A waiting Receive ends soon after its context, not after its half-second pull. The
// fastest of several attempts counts, because the machine may be busy.
func TestIdleReceiveEndsSoon(t *testing.T) {
	t.Parallel()
	p := newPlace(t, nats.Options{})
	s, err := p.b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Minute})
	require.NoError(t, err)
	least := time.Hour
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		var left time.Time
		time.AfterFunc(100*time.Millisecond, func() { // while a pull waits that was sent long ago
			left = time.Now()
			cancel()
		})
		for ctx.Err() == nil {
			ds, err := s.Receive(ctx, 10, 0)
			require.Empty(t, ds)
			require.True(t, err == nil || errors.Is(err, context.Canceled), "%v", err)
		}
		least = min(least, time.Since(left))
	}
	t.Logf("left after %v", least)
	require.Less(t, least, lull)
	require.NoError(t, p.b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
	ds, err := s.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.Equal(t, 1, ds[0].Attempt)
}

// Waiting members cost no goroutines beyond their callers', and leave together.
func TestIdleMembers(t *testing.T) { // not parallel, because it counts goroutines
	p := newPlace(t, nats.Options{Stream: "events"})
	const many = 100
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var members []backend.Source
	for i := range many {
		s, err := p.b.Attach(t.Context(), backend.Config{Topic: fmt.Sprint("t", i), Group: "g", Lease: time.Minute})
		require.NoError(t, err)
		members = append(members, s)
	}
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for _, s := range members {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.Receive(ctx, 10, 0)
			}
		})
	}
	time.Sleep(700 * time.Millisecond) // longer than a pull
	require.LessOrEqual(t, runtime.NumGoroutine()-before, many)
	start := time.Now()
	cancel()
	wg.Wait()
	t.Logf("%d members left in %v", many, time.Since(start))
}
