package groupstats_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/letter"
)

// A meter counts the calls of a backend in memory, and fails them while err is set.
type meter struct {
	*inmemory.Backend
	calls, read atomic.Int64
	now, most   atomic.Int64 // calls under way

	mu  sync.Mutex
	err error // of all calls
}

func newMeter(t *testing.T) *meter {
	b := inmemory.New(inmemory.Options{})
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &meter{Backend: b}
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// call counts a call, which takes a millisecond.
func (m *meter) call(ctx context.Context) error {
	m.calls.Add(1)
	m.most.Store(max(m.most.Load(), m.now.Add(1)))
	defer m.now.Add(-1)
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

func (m *meter) Ping(ctx context.Context) error { return m.call(ctx) }

func (m *meter) Topics(ctx context.Context) ([]string, error) {
	if err := m.call(ctx); err != nil {
		return nil, err
	}
	return m.Backend.Topics(ctx)
}

func (m *meter) Groups(ctx context.Context, topic string) ([]string, error) {
	if err := m.call(ctx); err != nil {
		return nil, err
	}
	return m.Backend.Groups(ctx, topic)
}

func (m *meter) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	if err := m.call(ctx); err != nil {
		return backend.Stats{}, err
	}
	return m.Backend.Stats(ctx, topic, group)
}

func (m *meter) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	if err := m.call(ctx); err != nil {
		return backend.Pause{}, err
	}
	return m.Backend.Paused(ctx, topic, group)
}

func (m *meter) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if err := m.call(ctx); err != nil {
		return nil, err
	}
	ms, err := m.Backend.Read(ctx, topic, from, limit)
	m.read.Add(int64(len(ms)))
	return ms, err
}

func publish(t *testing.T, b backend.Backend, topic string, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: fmt.Sprint(topic, i)}}))
	}
}

// attach adds a member to a group; it leaves with the test.
func attach(t *testing.T, b backend.Backend, topic, group string) backend.Source {
	t.Helper()
	s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func bury(t *testing.T, b backend.Backend, topic, group, class string, n int) {
	t.Helper()
	for range n {
		m := &backend.Message{Topic: topic}
		for name, value := range map[string]string{
			letter.Reason: "exhausted", letter.Group: group, letter.ErrorClass: class, letter.Error: "no " + class, letter.Topic: "orders",
			letter.LastAttempt: time.Now().Format(time.RFC3339Nano),
		} {
			m.Headers.Set(name, value)
		}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
	}
}

// watch looks each second for d, and returns the last snapshot.
func watch(t *testing.T, s *groupstats.Sampler, d time.Duration) (last *groupstats.Snapshot) {
	t.Helper()
	for range d/time.Second + 1 {
		last = s.Look(t.Context())
		time.Sleep(time.Second)
	}
	return last
}

// inBubble runs a test in a bubble. Goroutines of a sampler must have ended five minutes later.
func inBubble(t *testing.T, test func(t *testing.T, m *meter)) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(5 * time.Minute)
		test(t, newMeter(t))
	})
}
