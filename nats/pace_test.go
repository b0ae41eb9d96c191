package nats_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

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
