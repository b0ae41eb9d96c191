package nats_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// A delayed message is redelivered in time while eight members of separate processes delay
// others without a pause. With each NAK the server postpones its look for due messages of
// the whole group.
func TestDelaysDoNotPutOffEachOther(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	const members, many = 8, 1000
	var sources []backend.Source
	var held [members][]backend.Delivery
	for i := range members {
		b, err := as(t, server, "")
		require.NoError(t, err)
		s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Minute})
		require.NoError(t, err)
		sources = append(sources, s)
		ms := make([]*backend.Message, many)
		for i := range ms {
			ms[i] = &backend.Message{Topic: topic}
		}
		require.NoError(t, b.Publish(t.Context(), ms))
		for len(held[i]) < many {
			ds, err := s.Receive(t.Context(), many, 0)
			require.NoError(t, err)
			held[i] = append(held[i], ds...)
		}
	}
	delay := func(ctx context.Context, member int, d backend.Delivery, wait time.Duration) error {
		return sources[member].(backend.Delayer).Delay(ctx, []backend.Delayed{{Delivery: d, For: wait}})
	}
	require.NoError(t, delay(t.Context(), 0, held[0][0], 100*time.Millisecond))

	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var delayed atomic.Int64
	for member := range members {
		time.Sleep(3 * time.Millisecond)                            // with pauses of 25 ms the members together would leave the server no gap
		for part := range slices.Chunk(held[member][1:], many/10) { // concurrent calls
			wg.Go(func() {
				for _, d := range part {
					if delay(ctx, member, d, time.Hour) != nil {
						return
					}
					delayed.Add(1)
				}
			})
		}
	}
	for begun := delayed.Load(); ; {
		ds, err := sources[0].Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		if len(ds) > 0 {
			require.Equal(t, held[0][0].Position, ds[0].Position)
			t.Logf("after %d others", delayed.Load())
			break
		}
		require.Less(t, delayed.Load()-begun, int64(100), "so many others were delayed meanwhile, and it does not come back")
	}
}

// An event that fails a few times in turn is redelivered after its short delays, because
// few calls of Delay need no pause. The fastest of several events counts, because the machine
// may be busy.
func TestShortDelaysInTurn(t *testing.T) {
	t.Parallel()
	const delays, delay = 4, 20 * time.Millisecond
	b, err := as(t, natstest.Start(t), "")
	require.NoError(t, err)
	least := time.Hour
	for i := range 5 {
		topic := fmt.Sprint("t", i)
		member, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
		require.NoError(t, err)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic}}))
		start := time.Now()
		for attempt := 1; attempt <= delays+1; {
			ds, err := member.Receive(t.Context(), 1, 0)
			require.NoError(t, err)
			for _, d := range ds {
				require.Equal(t, attempt, d.Attempt)
				require.NoError(t, member.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: d, For: delay}}))
				attempt++
			}
		}
		took := time.Since(start)
		require.Greater(t, took, delays*delay)
		least = min(least, took)
	}
	t.Logf("%d delays of %v took %v", delays, delay, least)
	require.Less(t, least, delays*100*time.Millisecond)
}
