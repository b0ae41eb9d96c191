package presence_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/presence"
)

// A counted is a backend that counts calls for the topic of the heartbeats, and has a small limit.
type counted struct {
	lasting
	limit         int // bytes of a message; 0: none
	writes, reads atomic.Int64
	hangs         atomic.Bool // Publish and Now wait for the end of their context
	broken        atomic.Pointer[error]
}

func (b *counted) Limits() backend.Limits {
	l := backend.LimitsOf(b.Backend)
	l.Payload = b.limit
	return l
}

func (b *counted) Publish(ctx context.Context, ms []*backend.Message) error {
	if ms[0].Topic != presence.Topic {
		return b.Backend.Publish(ctx, ms)
	}
	if b.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	b.writes.Add(1)
	return b.Backend.Publish(ctx, ms)
}

func (b *counted) Now(ctx context.Context, topic string) (time.Time, error) {
	if b.hangs.Load() {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	return backend.Now(ctx, b.Backend, topic)
}

func (b *counted) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if topic == presence.Topic {
		b.reads.Add(1)
	}
	return backend.Read(ctx, b.Backend, topic, from, limit)
}

func (b *counted) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	s, err := b.Backend.Attach(ctx, c)
	return &fragile{s, b}, err
}

// A fragile is a source whose Receive can be made to fail.
type fragile struct {
	backend.Source
	of *counted
}

func (s *fragile) Receive(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
	if err := s.of.broken.Load(); err != nil {
		return nil, *err
	}
	return s.Source.Receive(ctx, limit, bytes)
}

func (s *fragile) Unwrap() backend.Source { return s.Source }

// A process writes as many heartbeats as Every says, however many events it handles, and looks for old heartbeats
// each ten minutes.
func TestEventsAreNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &counted{lasting: lasting{memory}}
		m := start(t, b, presence.Options{Every: time.Minute})
		_, err := m.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 8}, func(context.Context, *eventbus.Delivery) error {
			time.Sleep(12 * time.Second) // so that the number of running handlers differs from look to look
			return nil
		})
		require.NoError(t, err)
		pass(time.Second)
		before := b.writes.Load()
		for range 3600 / 5 {
			require.NoError(t, m.Publish(t.Context(), "orders", &eventbus.Event{}))
			pass(5 * time.Second)
		}
		pass(time.Minute)
		require.InDelta(t, 61, b.writes.Load()-before, 1)
		require.LessOrEqual(t, b.reads.Load(), int64(7*2))
		m.stop(t)
		require.NoError(t, memory.Close())
	})
}

// The calls for a heartbeat end after Timeout if the backend hangs, and the failure is reported.
func TestCallsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &counted{lasting: lasting{memory}}
		b.hangs.Store(true)
		began, told := time.Now(), make(chan error, 100)
		m := start(t, b, presence.Options{Timeout: 3 * time.Second, OnFailure: func(err error) { told <- err }})
		require.ErrorIs(t, <-told, context.DeadlineExceeded)
		require.Equal(t, 6*time.Second, time.Since(began), "three seconds for the clock, and three for the heartbeat")
		b.hangs.Store(false)
		pass(time.Minute)
		require.Equal(t, 1, heartbeats(t, memory))
		m.stop(t)
		require.NoError(t, memory.Close())
	})
}

// Texts of a heartbeat have bounds, and a heartbeat fits in a message of the backend.
func TestTextsAreBounded(t *testing.T) {
	require.Len(t, presence.Settings(eventbus.SubscribeOptions{DeadLetter: strings.Repeat("x", 1000)})["DeadLetter"], 256)
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &counted{lasting: lasting{memory}, limit: 20 << 10}
		failure := errors.New(strings.Repeat("é", 1000))
		b.broken.Store(&failure)
		m := start(t, b, presence.Options{Every: time.Second})
		for _, group := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			m.subscribe(t, "orders", eventbus.SubscribeOptions{Group: group})
		}
		pass(5 * time.Second)
		p := processes(t, b)[0]
		require.Less(t, len(p.Subscriptions), 26)
		require.Equal(t, 26, len(p.Subscriptions)+p.More)
		require.Equal(t, "degraded", p.Subscriptions[0].State)
		require.Equal(t, strings.Repeat("é", 256), p.Subscriptions[0].Error, "512 bytes")
		require.Equal(t, "(topic).dlq", p.Subscriptions[0].Settings["DeadLetter"])
		ms, err := backend.Read(t.Context(), memory, presence.Topic, backend.StartEarliest, 1)
		require.NoError(t, err)
		require.LessOrEqual(t, ms[0].Size(), 20<<10)
		m.stop(t)
		require.NoError(t, memory.Close())
	})
}

// Without OnFailure, the first of several failures in a row is logged.
func TestFailuresInARowAreOneLine(t *testing.T) {
	logger := slog.Default()
	defer slog.SetDefault(logger)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &blocked{lasting: lasting{memory}}
		m := start(t, b, presence.Options{})
		for range 2 {
			b.set(true)
			pass(time.Minute)
			b.set(false)
			pass(time.Minute)
		}
		m.stop(t)
		require.NoError(t, memory.Close())
	})
	require.Equal(t, 2, strings.Count(log.String(), "the heartbeat of this process was not written"), log.String())
}

// The context of New does not end the heartbeats, Instance names the process, the latest of one name is first,
// and a topic that was deleted fails nobody.
func TestNamesakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		var members []*member
		for range 2 {
			o := presence.Options{Instance: "shop-0", OnFailure: func(err error) { require.NoError(t, err) }}
			bus, err := eventbus.New(lasting{b}, eventbus.Options{Instance: o.Instance})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			a, err := presence.New(ctx, bus, o)
			cancel()
			require.NoError(t, err)
			m := &member{bus, nil, a, make(chan error, 1)}
			go func() { m.ended <- a.ListenAndServe() }()
			members = append(members, m)
			pass(time.Minute)
		}
		all := processes(t, b)
		require.Len(t, all, 2)
		require.Equal(t, "shop-0", all[0].Name)
		require.Equal(t, "shop-0", all[1].Name)
		require.True(t, all[0].Started.After(all[1].Started), "the latest is first")
		require.NoError(t, b.DeleteTopic(t.Context(), presence.Topic))
		for _, m := range members {
			m.stop(t)
		}
		require.NoError(t, b.Close())
	})
}

// A heartbeat names the events that have failed last, which are no change of the process. A heartbeat that would be
// too large leaves them out before it leaves subscriptions out.
func TestFailingEventsAreInTheHeartbeat(t *testing.T) {
	for _, limit := range []int{0, 13 << 10} {
		synctest.Test(t, func(t *testing.T) {
			memory := inmemory.New(inmemory.Options{})
			b := &counted{lasting: lasting{memory}, limit: limit}
			m := start(t, b, presence.Options{Every: time.Minute})
			o := eventbus.SubscribeOptions{Group: "billing", Retry: eventbus.Retry{MaxAttempts: 20, Initial: time.Minute, Jitter: -1}}
			_, err := m.Subscribe(t.Context(), "orders", o, func(_ context.Context, d *eventbus.Delivery) error {
				return errors.New("no tax rate for " + d.ID + strings.Repeat(" very", 200))
			})
			require.NoError(t, err)
			for _, id := range []string{"a", "b", "c", "d", "e", "f", strings.Repeat("g", 500)} {
				require.NoError(t, m.Publish(t.Context(), "orders", &eventbus.Event{ID: id, Key: "of " + id}))
				pass(time.Second)
			}
			pass(2 * time.Minute)
			s := processes(t, memory)[0].Subscriptions[0]
			require.Equal(t, 7, s.Failing)
			require.InDelta(t, 3, b.writes.Load(), 1)
			if limit == 0 {
				require.Len(t, s.Events, 5)
				e := s.Events[0]
				require.Equal(t, strings.Repeat("g", 500), e.ID)
				require.Equal(t, "orders", e.Topic)
				require.Equal(t, 20, e.MaxAttempts)
				require.Positive(t, e.Attempt)
				require.Contains(t, e.Error, "no tax rate for g")
				require.LessOrEqual(t, len(e.Error), 512)
				require.True(t, e.Due.After(time.Now().Add(-time.Minute)))
			}
			for _, group := range strings.Split("abcdefghij", "") {
				m.subscribe(t, "orders", eventbus.SubscribeOptions{Group: group})
			}
			pass(2 * time.Minute)
			p := processes(t, memory)[0]
			require.Len(t, p.Subscriptions, 11)
			for _, s := range p.Subscriptions {
				require.True(t, limit == 0 || len(s.Events) == 0)
			}
			m.stop(t)
			require.NoError(t, memory.Close())
		})
	}
}
