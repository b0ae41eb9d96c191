package redisstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// Settling nothing is not an error, and does not wait for a connection.
func TestNothingToSettle(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	release, err := b.HoldSessions(t.Context())
	require.NoError(t, err)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Ack(ctx, nil))
	require.NoError(t, s.Delay(ctx, nil))
	require.NoError(t, s.Extend(ctx, nil))
}

// A confirmed Ack means that this member held the message and has removed it.
func TestConfirmedAckIsTheHoldersOwn(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	require.True(t, b.Limits().FencedAcks)
	c := config()
	c.Lease, c.ConfirmAcks = time.Second, true
	first := attach(t, b, c)
	c.Lease = time.Minute
	second := attach(t, b, c)
	publish(t, b, batch("a", 4))
	stale := receive(t, first, 3)
	extended := receive(t, second, 1)
	pause(1100 * time.Millisecond)

	require.NoError(t, first.Ack(t.Context(), backend.Lend(stale[:1])), "its lease has passed, but nobody has taken it")
	require.ErrorIs(t, backend.ErrorAt(first.Ack(t.Context(), backend.Lend(stale[:1])), 0), backend.ErrLeaseLost, "a second time")

	taken := receive(t, second, 2)
	require.NoError(t, second.Ack(t.Context(), backend.Lend(taken[:1])))
	err := first.Ack(t.Context(), backend.Lend(stale))
	for i := range stale {
		require.ErrorIs(t, backend.ErrorAt(err, i), backend.ErrLeaseLost, "another's, settled or not")
	}
	require.NoError(t, second.Ack(t.Context(), backend.Lend(taken[1:])), "which is still the other's")

	require.NoError(t, second.Extend(t.Context(), backend.Lend(extended)))
	require.NoError(t, second.Ack(t.Context(), backend.Lend(extended)), "an Extend is no new delivery")
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Zero(t, stats.Lag+stats.InFlight+stats.Delayed)
}

// The same member may hold a later delivery of the message, which an earlier one does not
// settle. The result for one delivery does not depend on the others in the call.
func TestConfirmedAckIsOfThisDelivery(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	c := config()
	c.Lease, c.ConfirmAcks = time.Minute, true
	s := attach(t, b, c)
	publish(t, b, batch("a", 250))
	ds := receive(t, s, 250)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[120]}}))
	again := receive(t, s, 1)
	err := s.Ack(t.Context(), backend.Lend(ds))
	each(err, len(ds), func(i int, err error) {
		if i == 120 {
			require.ErrorIs(t, err, backend.ErrLeaseLost)
		} else {
			require.NoError(t, err)
		}
	})
	require.NoError(t, s.Ack(t.Context(), backend.Lend(again)))
}

// A message without a body is removed when it is delivered. Acknowledging it is not an error.
func TestConfirmedAckOfWhatIsGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	c := config()
	c.ConfirmAcks = true
	s := attach(t, b, c)
	publish(t, b, batch("a", 1))
	ds := receive(t, s, 1)
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: ds[0]}}))
	require.Equal(t, int64(1), server.Client(t).XDel(t.Context(), stream, ds[0].Position).Val())
	gone := receive(t, s, 1)
	require.ErrorIs(t, gone[0].Err, backend.ErrGone)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(gone)))
	require.ErrorIs(t, s.Extend(t.Context(), backend.Lend(gone)), backend.ErrLeaseLost)
}
