package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
)

// A distant is a backend in memory whose calls fail while it is away.
type distant struct {
	*inmemory.Backend
	away atomic.Bool
}

func (d *distant) err(call string) error {
	if d.away.Load() {
		return fmt.Errorf("distant: %s: %w", call, backend.ErrUnavailable)
	}
	return nil
}

func (d *distant) Publish(ctx context.Context, msgs []*backend.Message) error {
	if err := d.err("publish"); err != nil {
		return err
	}
	return d.Backend.Publish(ctx, msgs)
}

func (d *distant) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if err := d.err("read"); err != nil {
		return nil, err
	}
	return d.Backend.Read(ctx, topic, from, limit)
}

func (d *distant) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := d.Backend.Attach(ctx, c)
	return &distantSource{s, d}, err
}

type distantSource struct {
	backend.Source
	distant *distant
}

func (s *distantSource) Receive(ctx context.Context, n int, maxBytes int64) ([]backend.Delivery, error) {
	if err := s.distant.err("receive"); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	ds, err := s.Source.Receive(wait, n, maxBytes)
	if ctx.Err() == nil && wait.Err() != nil {
		err = nil
	}
	return ds, err
}

func (s *distantSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.distant.err("ack"); err != nil {
		return err
	}
	return s.Source.Ack(ctx, ds)
}

func (s *distantSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	if err := s.distant.err("extend"); err != nil {
		return err
	}
	return s.Source.(backend.Extender).Extend(ctx, ds)
}

func (s *distantSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	if err := s.distant.err("delay"); err != nil {
		return err
	}
	return s.Source.(backend.Delayer).Delay(ctx, ds)
}

// warnings keeps the lines of a bus from the level WARN on.
type warnings struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) observer() observer.Observer {
	return observer.Slog(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

func (w *warnings) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSuffix(w.text.String(), "\n"), "\n")
}

// Ten seconds without the backend are at most six lines, however many subscriptions there
// are. They say when the outage began, and how long it lasted.
func TestAnOutageIsFewLines(t *testing.T) {
	const subscriptions = 20
	synctest.Test(t, func(t *testing.T) {
		var log warnings
		b := &distant{Backend: inmemory.New(inmemory.Options{})}
		bus, err := eventbus.New(b, eventbus.Options{Observer: log.observer()})
		require.NoError(t, err)
		for i := range subscriptions {
			topic := fmt.Sprint("t", i)
			_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(_ context.Context, d *eventbus.Delivery) error {
				time.Sleep(time.Duration(d.Payload[0]) * time.Second)
				return nil
			})
			require.NoError(t, err)
			for s := range byte(15) { // some runs end during the outage, some leases need to be extended in it
				require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{Payload: []byte{s}}))
			}
		}
		time.Sleep(time.Second)
		began := time.Now()
		b.away.Store(true)
		time.Sleep(10 * time.Second)
		b.away.Store(false)
		time.Sleep(2 * time.Minute) // all is handled
		require.NoError(t, bus.Shutdown(t.Context()))
		lines := log.lines()
		t.Log(strings.Join(lines, "\n"))
		require.LessOrEqual(t, len(lines), 6)
		require.Contains(t, lines[0], "time="+began.Format("2006-01-02T15:04:0"), "the first line comes at once")
		end := lines[len(lines)-1]
		require.Contains(t, end, "since="+began.Format("2006-01-02T15:04:0"))
		require.Contains(t, end, " lasted=1")
		require.Contains(t, end, fmt.Sprint(" subscriptions=", subscriptions))
	})
}

// A backend that was closed without its bus ends the bus's jobs: a closed backend never opens again,
// so trying every second for the life of the process would only fill the log.
func TestAClosedBackendEndsTheJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log warnings
		b := inmemory.New(inmemory.Options{})
		bus, err := eventbus.New(b, eventbus.Options{Observer: log.observer()})
		require.NoError(t, err)
		_, err = bus.Subscribe(t.Context(), "plain", eventbus.SubscribeOptions{Group: "g"}, succeed)
		require.NoError(t, err)
		require.NoError(t, bus.PublishIn(t.Context(), "plain", time.Hour, &eventbus.Event{}))
		_, err = bus.Subscribe(t.Context(), "found.*", eventbus.SubscribeOptions{Group: "g"}, succeed)
		require.NoError(t, err)
		time.Sleep(time.Minute) // each job has run
		require.NoError(t, b.Close())
		time.Sleep(30 * time.Second)
		before := len(log.lines())
		time.Sleep(2 * time.Hour)
		after := len(log.lines())
		require.NoError(t, bus.Shutdown(t.Context()))
		require.Equal(t, before, after, "log lines after the backend was closed")
	})
}
