package redisstream_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

// A lockedLog is written to by several goroutines.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}

// Ten seconds without the server are at most six lines of the log, while 20 subscriptions
// have work. The last line says since when, and for how long.
func TestAnOutageIsFewLines(t *testing.T) {
	const subscriptions = 20
	server := redistest.Start(t)
	var log lockedLog
	bus, err := eventbus.Open(t.Context(), server.URL(), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}, redisstream.Driver{})
	require.NoError(t, err)
	var handled atomic.Int64
	for i := range subscriptions {
		topic := fmt.Sprint("t", i)
		_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(ctx context.Context, _ *eventbus.Delivery) error {
			select { // some runs end while the server is away
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			handled.Add(1)
			return nil
		})
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{}))
		}
	}
	server.Kill()
	time.Sleep(10 * time.Second)
	server.Run()
	for _, s := range bus.Subscriptions() {
		require.Eventually(t, func() bool { state, _ := s.State(); return state == observer.Running }, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
	lines := log.lines()
	t.Logf("%d events, %d lines:\n%s", handled.Load(), len(lines), strings.Join(lines, "\n"))
	require.LessOrEqual(t, len(lines), 6)
	require.Regexp(t, fmt.Sprintf(` since=\S+ lasted=[1-5]\d\.\d+s failures=\d+ subscriptions=%d$`, subscriptions), lines[len(lines)-1])
}
