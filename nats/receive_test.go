package nats_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
)

// lull is the time for which a Receive waits for messages that are under way.
const lull = 40 * time.Millisecond

// A waiting Receive ends soon after its context, not after its half-second pull. The
// fastest of several attempts counts, because the machine may be busy.
func TestIdleReceiveEndsSoon(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{})
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
	p := newFixture(t, nats.Options{Stream: "events"})
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

// A consumer with small limits for a pull still delivers everything, at first and after
// idle time.
func TestConsumerLimits(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*jetstream.ConsumerConfig){
		"batch of one":      func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 1 },
		"batch of three":    func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 3 },
		"short expiry":      func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = 50 * time.Millisecond },
		"both":              func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch, c.MaxRequestExpires = 2, 100*time.Millisecond },
		"one pull waits":    func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 1 },
		"few bytes at once": func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, nats.Options{})
			s, err := p.js.CreateStream(t.Context(), streamConfig())
			require.NoError(t, err)
			config := consumerConfig()
			limit(&config)
			_, err = s.CreateConsumer(t.Context(), config)
			require.NoError(t, err)

			var mu sync.Mutex
			handled := map[string]int{}
			bus := p.bus(t, eventbus.Options{Observer: observer.Observer{StateChanged: func(c observer.StateChanged) {
				if c.To == "degraded" && config.MaxWaiting != 1 { // with one waiting pull allowed, the other member waits
					t.Errorf("a member is degraded: %v", c.Err)
				}
			}}})
			for range 2 {
				_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "g", Concurrency: 8}, func(_ context.Context, d *eventbus.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					handled[d.ID]++
					return nil
				})
				require.NoError(t, err)
			}
			for round := 1; round <= 2; round++ {
				events := make([]*eventbus.Event, 50)
				for i := range events {
					events[i] = &eventbus.Event{ID: fmt.Sprint(round, "-", i)}
				}
				require.NoError(t, bus.Publish(t.Context(), "orders", events...))
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(handled) == 50*round
				}, 30*time.Second, 5*time.Millisecond, "events are handled")
				time.Sleep(600 * time.Millisecond) // longer than a pull
			}
			for id, n := range handled {
				require.Equal(t, 1, n, "runs of %s", id)
			}
		})
	}
}

// A message larger than a limit of the server or stream is refused with a typed error.
// Messages before and after it pass.
func TestLargerThanAnyLimit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		stream func(*jetstream.StreamConfig)
		large  int
		want   error
	}{
		"server":  {func(*jetstream.StreamConfig) {}, 100 << 10, backend.ErrTooLarge},
		"stream":  {func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 10 }, 4 << 10, backend.ErrTooLarge},
		"no room": {func(c *jetstream.StreamConfig) { c.MaxBytes = 8 << 10 }, 16 << 10, backend.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "server.conf")
			require.NoError(t, os.WriteFile(file, []byte("max_payload: 131072\n"), 0o600))
			p := newFixture(t, nats.Options{}, "-c", file)
			config := streamConfig()
			row.stream(&config)
			s, err := p.js.CreateStream(t.Context(), config)
			require.NoError(t, err)
			err = p.b.Publish(t.Context(), []*backend.Message{
				{Topic: "orders", ID: "before", Payload: []byte("small")},
				{Topic: "orders", ID: "large", Payload: make([]byte, row.large)},
				{Topic: "orders", ID: "after", Payload: []byte("small")},
			})
			require.NoError(t, backend.ErrorAt(err, 0))
			require.ErrorIs(t, backend.ErrorAt(err, 1), row.want)
			require.True(t, backend.NotStored(backend.ErrorAt(err, 1)), "certainly not stored")
			require.NoError(t, backend.ErrorAt(err, 2))
			info, err := s.Info(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, info.State.Msgs)
			require.True(t, p.conn.IsConnected(), "the connection survives it")
			require.Zero(t, p.conn.Stats().Reconnects)
		})
	}
}

// Limits holds the shortest window of all topics, because the bus repeats within it.
func TestLimitsHaveTheShortestOnceWindow(t *testing.T) {
	t.Parallel()
	p := newFixture(t, nats.Options{Topics: map[string]nats.TopicOptions{"short": {OnceWindow: time.Second}, "long": {OnceWindow: time.Hour}, "same": {}}})
	require.Equal(t, time.Second, p.b.Limits().OnceWindow)
}
