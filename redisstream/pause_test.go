package redisstream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

const pauseOfWorkers = stream + ":delayed:" + workers + ":pause"

// told receives until the member learns of a pause, and returns it.
func told(t testing.TB, s backend.Source) backend.Pause {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		ds, err := s.Receive(t.Context(), 10, 0)
		if paused, ok := errors.AsType[*backend.PausedError](err); ok {
			require.Empty(t, ds)
			return paused.Pause
		}
		require.NoError(t, err)
	}
	t.Fatal("the member learns of no pause")
	return backend.Pause{}
}

// A pause survives a restart of the server, with every byte of its texts and each nanosecond
// of its end. Its beginning is by the server's clock. Its key expires at its end.
func TestPauseIsStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	b := open(t, client, redisstream.Options{})
	s := attach(t, b, config())
	start := client.Time(t.Context()).Val()
	p := backend.Pause{By: "a\r\n\x00\xff b", Why: "50% & more: “x”=+", Until: start.Add(time.Hour + 1234567).UTC()}
	require.NoError(t, b.Pause(t.Context(), topic, workers, p))
	require.InDelta(t, time.Hour.Seconds(), client.PTTL(t.Context(), pauseOfWorkers).Val().Seconds(), 10)
	server.Stop()
	server.Run()
	var got backend.Pause
	require.Eventually(t, func() (ok bool) {
		var err error
		got, err = b.Paused(t.Context(), topic, workers)
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	require.WithinRange(t, got.Since, start, client.Time(t.Context()).Val())
	p.Since = got.Since
	require.Equal(t, p, got)
	_, _ = s.Receive(t.Context(), 1, 0) // its connection has broken
	require.Equal(t, p, told(t, s))

	p.Until = client.Time(t.Context()).Val().Add(300 * time.Millisecond)
	require.NoError(t, b.Pause(t.Context(), topic, workers, p))
	require.True(t, told(t, s).Until.Equal(p.Until))
	require.Eventually(t, func() bool { return client.Exists(t.Context(), pauseOfWorkers).Val() == 0 }, 2*time.Second, 10*time.Millisecond)
	require.False(t, client.Time(t.Context()).Val().Before(p.Until))
	publish(t, b, batch("a", 1))
	receive(t, s, 1)
}

// A member of a paused group sends one command with each Receive. It is still a member after
// its lease, and gets the messages of a lost reply in order.
func TestPausedMemberLives(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	c := config()
	c.Lease = 2 * time.Second
	s := attach(t, b, c)
	publish(t, b, batch("a", 3))
	proxy.DropReplyTo("XREADGROUP")
	_, err := s.Receive(t.Context(), 2, 0)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	require.NoError(t, b.Pause(t.Context(), topic, workers, backend.Pause{}))
	told(t, s)
	before := total(proxy)
	for range 10 {
		told(t, s)
		pause(c.Lease / 8)
	}
	require.Equal(t, int64(10), total(proxy)-before)
	_, err = b.Maintain(t.Context(), topic, workers)
	require.NoError(t, err)
	stats, err := b.Stats(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, int64(1), stats.Members)
	require.NoError(t, b.Resume(t.Context(), topic, workers))
	ds := receive(t, s, 3)
	require.Equal(t, []string{"a-0", "a-1", "a-2"}, []string{ds[0].ID, ds[1].ID, ds[2].ID})
	require.Equal(t, 1, ds[0].Attempt, "the lost read did not count")
}

// Groups can be paused while the memory of the server is full.
func TestPauseInFullMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, dial(t, server.Addr()), redisstream.Options{})
	attach(t, b, config())
	e := attach(t, b, brief())
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	require.NoError(t, b.Pause(t.Context(), topic, workers, backend.Pause{By: "ada", Until: time.Now().Add(time.Hour)}))
	p, err := b.Paused(t.Context(), topic, workers)
	require.NoError(t, err)
	require.Equal(t, "ada", p.By)
	require.NoError(t, b.Resume(t.Context(), topic, workers))

	second := attach(t, b, brief()) // members of ephemeral groups live too
	_, err = b.Maintain(t.Context(), topic, passing)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, e.Close())
	require.Empty(t, remains(t, server.Client(t)))
}
