package bolt

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A removed message makes room in a full topic, and counts neither in Depth nor in Oldest.
func TestRemovedMessagesMakeRoom(t *testing.T) {
	b := open(t, newFile(t), Options{MaxMessages: 3})
	_, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Minute})
	require.NoError(t, err)
	ms := []*backend.Message{{Topic: "orders"}, {Topic: "orders"}, {Topic: "orders"}}
	require.NoError(t, b.Publish(t.Context(), ms))
	require.ErrorIs(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}), backend.ErrFull)
	for _, gone := range []int{1, 0} { // the first leaves a gap, and the second leaves none
		require.NoError(t, b.Remove(t.Context(), "orders", []string{ms[gone].Position, ms[gone].Position}))
		stats, err := b.Stats(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Equal(t, int64(2), stats.Depth)
		require.NotZero(t, stats.Oldest)
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}))
		require.ErrorIs(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders"}}), backend.ErrFull)
	}
}

// A pause survives the process, with its texts and times. It does not change other traits of the group.
func TestAPauseIsStored(t *testing.T) {
	path := newFile(t)
	text := strings.Repeat("é", backend.MaxPauseText/2)
	until := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	b := open(t, path, Options{})
	attach(t, b, backend.Config{Group: "g"})
	require.NoError(t, b.Publish(t.Context(), numbered("", 1, 0)))
	require.NoError(t, b.Pause(t.Context(), "orders", "g", backend.Pause{Until: until, By: text, Why: text}))
	since := time.Now()
	require.NoError(t, b.Close())

	b = open(t, path, Options{})
	p, err := b.Paused(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.Equal(t, until, p.Until.UTC())
	require.WithinDuration(t, since, p.Since, time.Minute)
	require.Equal(t, []string{text, text}, []string{p.By, p.Why})
	s := attach(t, b, backend.Config{Group: "g"})
	_, err = s.Receive(t.Context(), 1, 0)
	told := &backend.PausedError{}
	require.ErrorAs(t, err, &told)
	require.Equal(t, p, told.Pause)
	require.NoError(t, b.Resume(t.Context(), "orders", "g"))
	ds, err := s.Receive(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)

	e := attach(t, b, backend.Config{Group: "e", Ephemeral: true})
	require.NoError(t, b.Pause(t.Context(), "orders", "e", backend.Pause{}))
	require.NoError(t, b.Resume(t.Context(), "orders", "e"))
	attach(t, b, backend.Config{Group: "e", Ephemeral: true})
	p, err = b.Paused(t.Context(), "orders", "e")
	require.NoError(t, err)
	require.Zero(t, p)
	require.NoError(t, e.Close())
}

// A waiting member learns of a pause at once. A call that would take no messages does not.
func TestAWaitingMemberIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, newFile(t), Options{})
		s := attach(t, b, backend.Config{Group: "g"})
		ended := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := s.Receive(context.WithoutCancel(t.Context()), 1, 0)
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, b.Pause(t.Context(), "orders", "g", backend.Pause{Until: began.Add(time.Minute)}))
		require.ErrorIs(t, <-ended, backend.ErrPaused)
		require.Zero(t, time.Since(began))
		_, err := s.Receive(t.Context(), 0, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Receive(ctx, 1, 0)
		require.ErrorIs(t, err, context.Canceled)
		require.Nil(t, backend.Class(err))

		time.Sleep(time.Minute)
		require.NoError(t, b.Publish(t.Context(), numbered("", 1, 0)))
		ds, err := s.Receive(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Len(t, ds, 1, "the pause is over")
	})
}
