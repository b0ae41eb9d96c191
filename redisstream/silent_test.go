package redisstream_test

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A connection that is silent fails the calls of the one write on it. No other call fails or
// waits for it, though all publish to one topic.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr())
	inner, err := redisstream.New(dial(t, proxy.Addr()), redisstream.Options{})
	require.NoError(t, err)
	b := &counting{Backend: inner}
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) })
	publish := func(payload string) error {
		return bus.Publish(t.Context(), "orders", &eventbus.Event{Payload: []byte(payload)})
	}

	var failed, longest, later atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	other := func() error {
		start := time.Now()
		err := publish("other")
		if took := int64(time.Since(start)); err == nil {
			for most := longest.Load(); took > most && !longest.CompareAndSwap(most, took); {
				most = longest.Load()
			}
		}
		return err
	}
	for range 16 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if other() != nil {
					failed.Add(1)
					return
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	proxy.SwallowOne(func(request []byte) bool { return bytes.Contains(request, victim) })
	wg.Go(func() { // it begins when the silent write is under way
		time.Sleep(500 * time.Millisecond)
		for ; time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if other() == nil {
				later.Add(1)
			}
		}
	})
	require.ErrorIs(t, publish(string(victim)), eventbus.ErrUnknownOutcome)
	wg.Wait()
	t.Logf("%d others were in the silent write, the longest other call took %v", b.with.Load()-1, time.Duration(longest.Load()))
	require.Equal(t, b.with.Load()-1, failed.Load(), "the calls that were in the write")
	require.Less(t, time.Duration(longest.Load()), 2*time.Second, "a silent connection holds its calls for 5 s")
	require.Positive(t, later.Load(), "calls that began later")
}

var victim = []byte("victim")

// counting counts the messages of the call that has the victim.
type counting struct {
	*redisstream.Backend
	with atomic.Int64
}

func (c *counting) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		if bytes.Equal(m.Payload, victim) {
			c.with.Store(int64(len(msgs)))
		}
	}
	return c.Backend.Publish(ctx, msgs)
}
