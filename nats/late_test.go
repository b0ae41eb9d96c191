package nats_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/natstest"
)

// What is delayed comes back while others are being delayed without a pause: with
// each of those the server puts off its look for what is due.
func TestDelaysDoNotPutOffEachOther(t *testing.T) {
	t.Parallel()
	b, err := as(t, natstest.Start(t), "")
	require.NoError(t, err)
	s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Minute})
	require.NoError(t, err)
	const many = 10000
	ms := make([]*backend.Message, many)
	for i := range ms {
		ms[i] = &backend.Message{Topic: topic}
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	var held []backend.Delivery
	for len(held) < many {
		ds, err := s.Receive(t.Context(), many)
		require.NoError(t, err)
		held = append(held, ds...)
	}
	delay := func(ctx context.Context, d backend.Delivery, wait time.Duration) error {
		return s.(backend.Delayer).Delay(ctx, []backend.Delayed{{Delivery: d, For: wait}})
	}
	require.NoError(t, delay(t.Context(), held[0], 100*time.Millisecond))

	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	delayed := make(chan int, 1)
	wg.Go(func() {
		n := 1
		for n < many && delay(ctx, held[n], time.Hour) == nil {
			n++
		}
		delayed <- n
	})
	for {
		ds, err := s.Receive(t.Context(), 1)
		require.NoError(t, err)
		if len(ds) > 0 {
			require.Equal(t, held[0].Position, ds[0].Position)
			break
		}
	}
	cancel()
	require.Less(t, <-delayed, many, "it came back only when nothing else was delayed any more")
}
