package redisstream_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// An id whose first number has more than 14 digits is a position like any other: of a read,
// a start, a removal, an acknowledgement and a delay.
func TestLongIDsArePositions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	b.SetYouth(0)
	s := attach(t, b, config())
	publish(t, b, batch("short", 2))
	ids := []string{"99999999999999-7", "100000000000000-1", "1795243593723000-2", "1795243593723000-11", "18446744073709551614-0"}
	for _, id := range ids {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: id, Values: []any{"event", ":id: " + id + "\n\n"}}).Err())
	}
	publish(t, b, once(batch("long", 1)))
	want := append(append([]string{"short-0", "short-1"}, ids...), "long-0")
	ids = nil
	var positions []string
	for _, m := range stored(t, b) {
		ids, positions = append(ids, m.ID), append(positions, m.Position)
	}
	require.Equal(t, want, ids)
	require.True(t, slices.IsSorted(positions), positions)
	for i, position := range positions {
		ms, err := b.Read(t.Context(), topic, backend.StartAfter(position), 1)
		require.NoError(t, err)
		require.Len(t, ms, min(1, len(want)-1-i))
		require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(position)))
		if i+1 < len(want) {
			require.Equal(t, want[i+1], receive(t, s, 1)[0].ID)
		}
	}
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartEarliest))

	// Delayed messages are due in the order of their positions, whatever the length of their ids.
	ds := receive(t, s, len(want))
	var delays []backend.Delayed
	for _, i := range []int{7, 5, 3, 1, 6, 4, 2, 0} {
		delays = append(delays, backend.Delayed{Delivery: ds[i], For: 10 * time.Millisecond})
	}
	require.NoError(t, s.Delay(t.Context(), delays))
	ds = receive(t, s, len(want))
	ids = nil
	for i := range ds {
		ids = append(ids, ds[i].ID)
		require.Equal(t, positions[i], ds[i].Position)
		require.Equal(t, 2, ds[i].Attempt)
	}
	require.Equal(t, want, ids)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)))
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), stats.InFlight)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds[:3])))
	confirming := config()
	confirming.ConfirmAcks, confirming.Group, confirming.Start = true, "confirming", backend.StartAfter(positions[4])
	s = attach(t, b, confirming)
	ds = receive(t, s, 3)
	require.Equal(t, want[5], ds[0].ID)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	stats, err = b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(5), stats.InFlight)
	_, err = b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	require.NoError(t, b.Remove(t.Context(), topic, positions[5:7]))
	require.Len(t, stored(t, b), 3, "without three that are settled, and two that were removed")
}
