package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// flush empties the server's script cache every so often, until stop is called.
func flush(t *testing.T, server *redistest.Server, every time.Duration) (stop func()) {
	client := server.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for ctx.Err() == nil {
			_ = client.ScriptFlush(ctx).Err()
			pause(every)
		}
	})
	return func() { cancel(); flusher.Wait() }
}

// F09: a server that forgets its scripts again and again does no harm. No call fails,
// nothing is lost, and nothing is stored or handled twice.
func TestForgottenScriptsHarmNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	var failed atomic.Pointer[error]
	bus := eventbustest.On(t, b, eventbus.Options{Dedup: true, Observer: observer.Observer{
		Failed: func(f observer.Failed) { failed.Store(&f.Err) },
	}})
	const events = 2000
	var mu sync.Mutex
	tries, succeeded := map[string]int{}, map[string]int{}
	done := make(chan struct{})
	o := eventbus.SubscribeOptions{Group: workers, Concurrency: 16, Retry: eventbus.Retry{Initial: 10 * time.Millisecond}}
	_, err := bus.Subscribe(t.Context(), topic, o, func(_ context.Context, d *eventbus.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if tries[d.ID]++; len(d.ID)%2 == 0 && tries[d.ID] == 1 {
			return errors.New("now and then")
		}
		if succeeded[d.ID]++; len(succeeded) == events {
			close(done)
		}
		return nil
	})
	require.NoError(t, err)
	stop := flush(t, server, 20*time.Millisecond)
	defer stop()
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for n := range events / 4 / 10 {
				var list []*eventbus.Event
				for i := range 10 {
					list = append(list, &eventbus.Event{ID: fmt.Sprintf("%d-%d-%d", p, n, i)})
				}
				if err := bus.Publish(t.Context(), topic, list...); err != nil {
					t.Errorf("publish: %v", err)
				}
				pause(5 * time.Millisecond)
			}
		})
	}
	publishers.Wait()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Errorf("handled %d of %d", len(succeeded), events)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
	stop()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err, "nothing fails")
	}
	for id, n := range succeeded {
		require.Equal(t, 1, n, "%s was handled once", id)
	}
	length, err := server.Client(t).XLen(t.Context(), stream).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, length, int64(events), "nothing is stored twice")
}

// Several hundred Once messages in one call take several calls of the script. If the
// server forgets it between them, neither order nor outcome changes.
func TestLargeOnceBatchKeepsItsOrderOverForgottenScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	defer flush(t, server, time.Millisecond)()
	last := ""
	for round := range 20 {
		ms := once(batch(fmt.Sprint(round), 350))
		publish(t, b, ms)
		var positions []string
		for _, m := range ms {
			require.False(t, m.Duplicate)
			require.Greater(t, m.Position, last, "%s comes after what stood before it", m.ID)
			last = m.Position
			positions = append(positions, m.Position)
		}
		again := once(batch(fmt.Sprint(round), 350))
		publish(t, b, again)
		for i, m := range again {
			require.True(t, m.Duplicate)
			require.Equal(t, positions[i], m.Position)
		}
	}
	require.Len(t, stored(t, b), 20*350)
}
