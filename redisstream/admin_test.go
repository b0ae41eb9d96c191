package redisstream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// A group that is reset to a position after the end of the stream would get no messages
// and no error.
func TestResetBeyondTheEndIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, dial(t, redistest.Start(t).Addr()), redisstream.Options{})
	s := attach(t, b, config())
	ms := batch("a", 2)
	publish(t, b, ms)
	ds := receive(t, s, 2)
	err := b.ResetGroup(t.Context(), topic, workers, backend.StartAfter("99999999999999-00000000000000000000"))
	require.ErrorIs(t, err, backend.ErrRefused)
	require.NoError(t, s.Extend(t.Context(), backend.Lend(ds)), "nothing was forgotten")
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(ms[1].Position)))
	require.NoError(t, b.ResetGroup(t.Context(), topic, workers, backend.StartAfter(ms[0].Position)))
	receive(t, s, 1)
}

// DeleteTopic leaves no key behind.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	declares(t, b, backend.TopicSettings{Keep: time.Hour, MaxMessages: 10})
	publish(t, b, once(batch("a", 3)))
	s := attach(t, b, next("first"))
	require.NoError(t, s.Delay(t.Context(), []backend.Delayed{{Delivery: receive(t, s, 1)[0], For: time.Hour}}))
	_, err := b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	require.NoError(t, b.Pause(t.Context(), topic, workers, backend.Pause{}))
	require.NoError(t, b.DeleteTopic(t.Context(), topic))
	require.Empty(t, server.Client(t).Keys(t.Context(), "*").Val())
}
