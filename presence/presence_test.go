package presence_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/presence"
	"github.com/seed41896749/eventbus/redisstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lasting is a backend that stays open when its bus is shut down.
type lasting struct{ backend.Backend }

func (lasting) Close() error              { return nil }
func (l lasting) Unwrap() backend.Backend { return l.Backend }

// A mortal is a lasting backend of a process that may die. Then nothing is removed anymore.
type mortal struct {
	lasting
	dead atomic.Bool
}

func (m *mortal) Remove(ctx context.Context, topic string, positions []string) error {
	if m.dead.Load() {
		return backend.ErrUnavailable
	}
	return backend.Remove(ctx, m.Backend, topic, positions)
}

// A member is a process that announces itself.
type member struct {
	*eventbus.Bus
	backend   *mortal
	announcer *presence.Announcer
	ended     chan error // gets the result of ListenAndServe
}

func start(t *testing.T, b backend.Backend, o presence.Options) *member {
	t.Helper()
	own := &mortal{lasting: lasting{b}}
	bus, err := eventbus.New(own, eventbus.Options{Service: o.Service})
	require.NoError(t, err)
	a, err := presence.New(t.Context(), bus, o)
	require.NoError(t, err)
	m := &member{bus, own, a, make(chan error, 1)}
	go func() { m.ended <- a.ListenAndServe() }()
	return m
}

func (m *member) subscribe(t *testing.T, topic string, o eventbus.SubscribeOptions) {
	t.Helper()
	_, err := m.Subscribe(t.Context(), topic, o, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	require.NoError(t, m.announcer.Shutdown(ctx))
	require.NoError(t, <-m.ended)
	require.NoError(t, m.Shutdown(ctx))
}

// stopped shuts down a member whose announcer has ended by itself.
func (m *member) stopped(t *testing.T) {
	t.Helper()
	require.NoError(t, m.announcer.Shutdown(t.Context()))
	_ = m.Shutdown(t.Context()) // its backend is closed
}

// fall is the end of a process that was killed: it has no chance to remove its heartbeat.
func (m *member) fall(t *testing.T) {
	t.Helper()
	m.backend.dead.Store(true)
	require.NoError(t, m.announcer.Shutdown(context.WithoutCancel(t.Context())))
	require.NoError(t, <-m.ended)
	require.NoError(t, m.Shutdown(context.WithoutCancel(t.Context())))
}

// pass lets time pass, until everything that is due at its end is done: a heartbeat of that moment is written, and
// the previous heartbeat is removed.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func processes(t *testing.T, b backend.Backend) []presence.Process {
	t.Helper()
	all, err := presence.Processes(t.Context(), b)
	require.NoError(t, err)
	return all
}

// heartbeats returns how many messages the topic of the heartbeats has.
func heartbeats(t *testing.T, b backend.Backend) int {
	t.Helper()
	ms, err := backend.Read(t.Context(), b, presence.Topic, backend.StartEarliest, 1000)
	if errors.Is(err, backend.ErrGone) {
		return 0
	}
	require.NoError(t, err)
	return len(ms)
}

// A process is shown with its subscriptions and their settings, and no longer after its end.
func TestProcesses(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (backend.Driver, string){
		"memory": func(*testing.T) (backend.Driver, string) { return inmemory.Driver{}, "mem:" },
		"redis":  func(t *testing.T) (backend.Driver, string) { return redisstream.Driver{}, redistest.Start(t).URL() },
		"nats":   func(t *testing.T) (backend.Driver, string) { return nats.Driver{}, natstest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver, text := open(t)
			u, err := url.Parse(text)
			require.NoError(t, err)
			b, err := driver.Open(t.Context(), u)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			require.Empty(t, processes(t, b), "no topic exists yet")

			m := start(t, b, presence.Options{Service: "shop", Version: "v1.2.3", Every: time.Second})
			m.subscribe(t, "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 4, Retry: eventbus.Retry{MaxAttempts: 7}})
			var p presence.Process
			require.Eventually(t, func() bool {
				all := processes(t, b)
				if len(all) == 1 {
					p = all[0]
				}
				return len(p.Subscriptions) == 1
			}, 20*time.Second, 20*time.Millisecond)
			require.Equal(t, eventbus.Options{Service: "shop"}.Process(), p.Name)
			require.Equal(t, "v1.2.3", p.Version)
			require.False(t, p.Silent)
			s := p.Subscriptions[0]
			require.Equal(t, "orders", s.Topic)
			require.Equal(t, "billing", s.Group)
			require.Equal(t, "running", s.State)
			require.Equal(t, 4, s.Handlers)
			require.Equal(t, "7", s.Settings["Retry.MaxAttempts"])
			m.stop(t)
			require.Zero(t, heartbeats(t, b))
		})
	}
}

// A process that was killed is silent after three times Every. An announcer removes its heartbeat after
// ten minutes. Meanwhile each process has one heartbeat.
func TestSilentProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		told := 0
		o := presence.Options{Service: "a", Every: 10 * time.Second, OnFailure: func(err error) {
			require.ErrorIs(t, err, backend.ErrUnavailable)
			told++
		}}
		dead := start(t, b, o)
		o.Service = "b"
		alive := start(t, b, o)
		pass(9 * time.Second)
		dead.fall(t) // its heartbeat is 9 s old
		require.Equal(t, 1, told, "a heartbeat that cannot be removed is reported, and Shutdown has not failed")
		pass(20 * time.Second)
		all := processes(t, b)
		require.Len(t, all, 2)
		require.True(t, strings.HasPrefix(all[0].Name, "a@"), all[0].Name)
		require.False(t, all[0].Silent, "after 29 s")
		pass(2 * time.Second)
		all = processes(t, b)
		require.True(t, all[0].Silent, "after 31 s")
		require.False(t, all[1].Silent)
		require.Equal(t, 2, heartbeats(t, b))

		pass(25 * time.Minute) // a sweep every ten minutes, of heartbeats older than ten
		require.Equal(t, 1, heartbeats(t, b))
		alive.stop(t)
		require.Zero(t, heartbeats(t, b))
		require.NoError(t, b.Close())
	})
}

// A change is in a heartbeat before Every has passed.
func TestChangeIsToldSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		m := start(t, b, presence.Options{Every: time.Hour})
		pass(time.Second)
		m.subscribe(t, "orders", eventbus.SubscribeOptions{Group: "billing"})
		pass(12 * time.Minute)
		require.Len(t, processes(t, b)[0].Subscriptions, 1)
		m.stop(t)
		require.NoError(t, b.Close())
	})
}

// The end waits for a call under way, so that its heartbeat is not forgotten, but not for ever. It ends by itself
// with the backend.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &slow{lasting: lasting{memory}, takes: 1500 * time.Millisecond}
		m := start(t, b, presence.Options{})
		pass(time.Second) // the first heartbeat is under way
		m.stop(t)
		require.Zero(t, heartbeats(t, memory))

		b.takes = time.Hour
		told := 0
		for _, patience := range []time.Duration{time.Second, time.Minute} {
			m = start(t, b, presence.Options{Timeout: 5 * time.Second, OnFailure: func(error) { told++ }})
			pass(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			began := time.Now()
			err := m.announcer.Shutdown(ctx)
			cancel()
			if patience == time.Second {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(began))
			} else {
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), 5*time.Second)
				require.Equal(t, 1, told)
			}
			require.NoError(t, <-m.ended)
			require.NoError(t, m.announcer.Shutdown(t.Context()), "again")
			require.NoError(t, m.Shutdown(t.Context()))
		}

		m = start(t, memory, presence.Options{})
		pass(time.Second)
		require.NoError(t, memory.Close())
		require.NoError(t, <-m.ended)
		m.stopped(t)
	})
}

// A slow is a backend that takes its time to tell the time and to store messages.
type slow struct {
	lasting
	takes time.Duration
}

func (b *slow) Now(ctx context.Context, _ string) (time.Time, error) {
	select {
	case <-time.After(b.takes):
		return time.Now(), nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

func (b *slow) Publish(ctx context.Context, ms []*backend.Message) error {
	select {
	case <-time.After(b.takes):
		return b.Backend.Publish(ctx, ms)
	case <-ctx.Done():
		return backend.ErrUnknownOutcome
	}
}

// A subscription to every topic does not get the heartbeats.
func TestPatternsLeaveNotesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		m := start(t, b, presence.Options{Every: time.Second})
		for i, pattern := range []string{">", "eventbus.*", "*.presence"} {
			sub, err := m.Subscribe(t.Context(), pattern, eventbus.SubscribeOptions{Group: string(rune('a' + i)), DeadLetter: eventbus.DiscardDeadLetters},
				func(_ context.Context, d *eventbus.Delivery) error {
					t.Errorf("%s got an event of %s", pattern, d.Topic)
					return nil
				})
			require.NoError(t, err)
			defer func() { require.Empty(t, sub.Topics(), pattern) }()
		}
		pass(time.Minute)
		require.Equal(t, 1, heartbeats(t, b))
		m.stop(t)
		require.NoError(t, b.Close())
	})
}

// A backend that cannot read or remove is refused, because heartbeats would stay.
func TestUnsupported(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(struct{ backend.Backend }{b}, eventbus.Options{})
	require.NoError(t, err)
	_, err = presence.New(t.Context(), bus, presence.Options{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = presence.Processes(t.Context(), bus.Backend())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, bus.Shutdown(t.Context()))
}

func TestOptions(t *testing.T) {
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{})
	require.NoError(t, err)
	_, err = presence.New(t.Context(), bus, presence.Options{Every: time.Millisecond})
	require.EqualError(t, err, "eventbus: presence.Options.Every is 1ms, less than a second")
	_, err = presence.New(t.Context(), bus, presence.Options{Every: 2 * time.Hour})
	require.EqualError(t, err, "eventbus: presence.Options.Every is 2h0m0s, more than an hour")
	_, err = presence.New(t.Context(), bus, presence.Options{Timeout: -1})
	require.EqualError(t, err, "eventbus: presence.Options.Timeout is negative")
	a, err := presence.New(t.Context(), bus, presence.Options{})
	require.NoError(t, err)
	require.NoError(t, a.Shutdown(t.Context()))
	require.NoError(t, a.ListenAndServe(), "after Shutdown")
	require.NoError(t, a.Shutdown(t.Context()), "again")
	_, err = presence.New(t.Context(), bus, presence.Options{Service: "a\x00b"})
	require.ErrorContains(t, err, "presence: ")
	require.NoError(t, bus.Shutdown(t.Context()))
}
