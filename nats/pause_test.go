package nats_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/nats"
)

// pausedBy receives until the group is paused, and returns the pause.
func (w *watched) pausedBy() (p backend.Pause) {
	require.Eventually(w, func() bool {
		ds, err := w.Receive(w.Context(), 10, 0)
		require.Empty(w, ds)
		told, ok := errors.AsType[*backend.PausedError](err)
		if ok {
			p = told.Pause
		} else {
			require.NoError(w, err)
		}
		return ok
	}, 10*time.Second, time.Millisecond, "the member does not learn of the pause")
	return p
}

// goesOn receives and settles n messages of a group whose pause ends.
func (w *watched) goesOn(n int) {
	require.Eventually(w, func() bool {
		ds, err := w.Receive(w.Context(), n, 0)
		if !errors.Is(err, backend.ErrPaused) {
			require.NoError(w, err)
		}
		for i := range ds {
			require.Equal(w, 1, ds[i].Attempt)
		}
		require.NoError(w, w.Ack(w.Context(), backend.Lend(ds)))
		n -= len(ds)
		return n == 0
	}, 10*time.Second, time.Millisecond, "the member does not learn of the end of the pause")
}

// A pause by another program is one too. The bus tells its end, but no operator and no
// reason. The bus changes such a pause, and another program changes a pause of the bus.
func TestPauseByAnotherProgram(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	w.publish("orders", 3)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	_, err := w.js.PauseConsumer(t.Context(), ordersStream, "g", until)
	require.NoError(t, err)
	w.maintain()
	p := w.pausedBy()
	require.WithinDuration(t, until, p.Until, 0)
	require.False(t, p.Since.IsZero())
	require.Empty(t, p.By+p.Why)

	ours := backend.Pause{By: "ann", Why: "INC-7"}
	require.NoError(t, w.b.Pause(t.Context(), "orders", "g", ours))
	p = w.pausedBy()
	require.Equal(t, ours, backend.Pause{By: p.By, Why: p.Why, Until: p.Until})

	_, err = w.js.PauseConsumer(t.Context(), ordersStream, "g", until)
	require.NoError(t, err)
	p, err = w.b.Paused(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.WithinDuration(t, until, p.Until, 0)
	require.Empty(t, p.By+p.Why, "the words belong to another pause")

	_, err = w.js.ResumeConsumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	w.goesOn(3)
	p, err = w.b.Paused(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.Zero(t, p)
	require.Empty(t, w.notices, "the engine reports pauses")
}

// A member of another process learns of a pause and of its end without Maintain.
func TestPauseInAnotherProcess(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	other, err := nats.New(w.conn, nats.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	require.NoError(t, other.Pause(t.Context(), "orders", "g", backend.Pause{By: "ann", Until: time.Now().Add(time.Hour)}))
	w.publish("orders", 3)
	require.Equal(t, "ann", w.pausedBy().By)
	require.NoError(t, other.Resume(t.Context(), "orders", "g"))
	w.goesOn(3)
}

// A pause survives changes of the consumer by members. Resume leaves no trace of it.
func TestPauseStaysWhenTheLeaseIsRaised(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	p := backend.Pause{Why: "the bank is closed"}
	require.NoError(t, w.b.Pause(t.Context(), "orders", "g", p))
	c := member()
	c.Lease = time.Minute
	longer, err := w.b.Attach(t.Context(), c)
	require.NoError(t, err)
	_, err = longer.Receive(t.Context(), 1, 0)
	require.ErrorIs(t, err, backend.ErrPaused)
	require.ErrorContains(t, err, p.Why)
	got, err := w.b.Paused(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.Equal(t, p.Why, got.Why)
	require.Zero(t, got.Until)
	require.NoError(t, w.b.Resume(t.Context(), "orders", "g"))
	consumer, err := w.js.Consumer(t.Context(), ordersStream, "g")
	require.NoError(t, err)
	require.NotContains(t, consumer.CachedInfo().Config.Metadata, "eventbus.pause")
	require.Equal(t, time.Minute, consumer.CachedInfo().Config.AckWait)
}

// While a group is paused, a member that receives again and again asks about once a second.
func TestPausedMemberIsQuiet(t *testing.T) {
	t.Parallel()
	w := watch(t, newFixture(t, nats.Options{}))
	require.NoError(t, w.b.Pause(t.Context(), "orders", "g", backend.Pause{}))
	before := w.conn.Stats().OutMsgs
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	calls := 0
	for ; ctx.Err() == nil; calls++ {
		_, err := w.Receive(ctx, 1, 0)
		if ctx.Err() == nil {
			require.ErrorIs(t, err, backend.ErrPaused)
		}
	}
	require.Greater(t, calls, 100)
	require.LessOrEqual(t, w.conn.Stats().OutMsgs-before, uint64(3))
}
