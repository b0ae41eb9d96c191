package presence_test

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/seed41896749/eventbus/presence"
)

// A blocked is a backend that refuses messages while it is blocked.
type blocked struct {
	lasting
	mu      sync.Mutex
	refuses bool
}

func (b *blocked) set(refuses bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuses = refuses
}

func (b *blocked) Publish(ctx context.Context, ms []*backend.Message) error {
	b.mu.Lock()
	refuses := b.refuses
	b.mu.Unlock()
	if refuses {
		return backend.ErrUnavailable
	}
	return b.Backend.Publish(ctx, ms)
}

// A failure is reported, and the process is back when the broker is.
func TestFailureIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := inmemory.New(inmemory.Options{})
		b := &blocked{lasting: lasting{memory}}
		told := 0
		m := start(t, b, presence.Options{Every: 5 * time.Second, OnFailure: func(err error) {
			told++
			require.ErrorIs(t, err, backend.ErrUnavailable)
		}})
		pass(time.Second)
		b.set(true)
		pass(time.Minute)
		require.True(t, processes(t, b)[0].Silent)
		b.set(false)
		pass(5 * time.Second)
		require.False(t, processes(t, b)[0].Silent)
		require.Equal(t, 1, heartbeats(t, b))
		m.stop(t)
		require.GreaterOrEqual(t, told, 55)
		require.NoError(t, memory.Close())
	})
}

// Other events in the topic, and heartbeats that are no JSON, are no processes.
func TestForeignEvents(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(b, eventbus.Options{})
	require.NoError(t, err)
	for _, e := range []*eventbus.Event{
		{Type: "other", Payload: []byte(`{"id":"x"}`)}, {Type: presence.Type, Payload: []byte(`{`)}, {Type: presence.Type, Payload: []byte(`{}`)},
	} {
		require.NoError(t, bus.Publish(t.Context(), presence.Topic, e))
	}
	require.Empty(t, processes(t, b))
	require.NoError(t, bus.Shutdown(t.Context()))
}

// A process with very many subscriptions, or ones with very many topics, has a heartbeat of bounded size.
func TestLargeHeartbeats(t *testing.T) {
	for _, row := range []struct{ subscriptions, topics, told int }{{201, 1, 200}, {64, 60, 16}} {
		synctest.Test(t, func(t *testing.T) {
			b := inmemory.New(inmemory.Options{})
			m := start(t, b, presence.Options{Every: 5 * time.Second})
			for i := range row.subscriptions {
				o := eventbus.SubscribeOptions{Group: fmt.Sprint("group-", i), DeadLetter: eventbus.DiscardDeadLetters}
				for n := range row.topics {
					o.Topics = append(o.Topics, fmt.Sprintf("topic-%03d.%s", n, strings.Repeat("x", 180)))
				}
				m.subscribe(t, "", o)
			}
			pass(1500 * time.Millisecond) // one heartbeat with all subscriptions, because each is slow to encode
			p := processes(t, b)[0]
			require.Len(t, p.Subscriptions, row.told)
			require.Equal(t, row.subscriptions-row.told, p.More)
			m.stop(t)
			require.NoError(t, b.Close())
		})
	}
}

// A troubled is a backend that cannot remove messages, or that does not tell the outcome of Publish, and
// whose clock differs.
type troubled struct {
	lasting
	keeps, unsure atomic.Bool
	ahead         time.Duration
}

func (b *troubled) Now(context.Context, string) (time.Time, error) {
	return time.Now().Add(b.ahead), nil
}

func (b *troubled) Remove(ctx context.Context, topic string, positions []string) error {
	if b.keeps.Load() {
		return backend.ErrDenied
	}
	return backend.Remove(ctx, b.Backend, topic, positions)
}

func (b *troubled) Publish(ctx context.Context, ms []*backend.Message) error {
	err := b.Backend.Publish(ctx, ms)
	if b.unsure.Load() {
		return backend.ErrUnknownOutcome
	}
	return err
}

// While heartbeats cannot be removed, the topic does not grow beyond a bound, and the process lives. All heartbeats
// are gone soon after the trouble, and after the end.
func TestTroubles(t *testing.T) {
	for name, trouble := range map[string]func(b *troubled) *atomic.Bool{
		"keeps":  func(b *troubled) *atomic.Bool { return &b.keeps },
		"unsure": func(b *troubled) *atomic.Bool { return &b.unsure },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := inmemory.New(inmemory.Options{})
				b := &troubled{lasting: lasting{memory}, ahead: -time.Hour}
				m := start(t, b, presence.Options{Every: 15 * time.Second, OnFailure: func(error) {}})
				pass(20 * time.Minute)
				require.False(t, processes(t, b)[0].Silent, "the clock of the broker counts")
				bad := trouble(b)
				bad.Store(true)
				pass(3 * time.Minute)
				require.False(t, processes(t, b)[0].Silent)
				pass(3 * time.Hour)
				require.LessOrEqual(t, heartbeats(t, memory), 16)
				bad.Store(false)
				pass(30 * time.Second)
				require.Equal(t, 1, heartbeats(t, memory))
				all := processes(t, b)
				require.Len(t, all, 1)
				require.False(t, all[0].Silent)
				bad.Store(true)
				pass(20 * time.Second)
				bad.Store(false)
				m.stop(t)
				require.Zero(t, heartbeats(t, memory))
				require.NoError(t, memory.Close())
			})
		})
	}
}

// A process with a long Every is not silent, and its heartbeat is not removed, while others sweep.
func TestLongEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		long, short := start(t, b, presence.Options{Service: "long", Every: time.Hour}), start(t, b, presence.Options{Service: "short"})
		for range 20 {
			pass(11 * time.Minute)
			all := processes(t, b)
			require.Len(t, all, 2)
			require.False(t, all[0].Silent)
			require.False(t, all[1].Silent)
		}
		long.stop(t)
		short.stop(t)
		require.NoError(t, b.Close())
	})
}

// If the topic has more than one call reads, Processes says so instead of pretending that it was all.
// The newest heartbeat of a process counts.
func TestBoundsOfAReading(t *testing.T) {
	b := inmemory.New(inmemory.Options{})
	bus, err := eventbus.New(lasting{b}, eventbus.Options{})
	require.NoError(t, err)
	heartbeat := func(id, name, more string) *eventbus.Event {
		text := fmt.Sprintf(`{"id":%q,"name":%q,"silent":true,"written":%q%s}`, id, name, time.Now().Format(time.RFC3339Nano), more)
		return &eventbus.Event{Type: presence.Type, Payload: []byte(text)}
	}
	publish := func(n int, e *eventbus.Event) {
		for n > 0 {
			some := slices.Repeat([]*eventbus.Event{e}, min(n, 500))
			require.NoError(t, bus.Publish(t.Context(), presence.Topic, some...))
			n -= len(some)
		}
	}
	subscriptions := func(n int) string { return `,"subscriptions":[{}` + strings.Repeat(",{}", n) + "]" }
	publish(1, heartbeat("1", "old", ""))
	publish(1, heartbeat("1", "new", subscriptions(50_000)))
	publish(1, heartbeat("2", "too large", subscriptions(100_000)))
	all := processes(t, b)
	require.Len(t, all, 1)
	require.Equal(t, "new", all[0].Name)
	require.False(t, all[0].Silent)
	require.Len(t, all[0].Subscriptions, 200)
	publish(100, heartbeat("3", "much", fmt.Sprintf(`,"other":%q`, strings.Repeat("x", 240_000))))
	const many = "presence: eventbus.presence has more than 10000 messages or 16 MiB"
	_, err = presence.Processes(t.Context(), b)
	require.EqualError(t, err, many)
	require.NoError(t, b.DeleteTopic(t.Context(), presence.Topic))
	publish(10_001, heartbeat("3", "many", ""))
	_, err = presence.Processes(t.Context(), b)
	require.EqualError(t, err, many)
	require.NoError(t, bus.Shutdown(t.Context()))
	require.NoError(t, b.Close())
}

// The clock of the broker may be set back, and another program may write any heartbeat.
func TestHeartbeatsOfAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		m := start(t, b, presence.Options{})
		pass(time.Second)
		for i, every := range []time.Duration{-1, 0, 1 << 62} {
			heartbeat := fmt.Sprintf(`{"id":"%d","every":%d,"written":"2999-01-01T00:00:00Z"}`, i, every)
			require.NoError(t, m.Publish(t.Context(), presence.Topic, &eventbus.Event{Type: presence.Type, Payload: []byte(heartbeat)}))
		}
		all := processes(t, b)
		require.Len(t, all, 4)
		for _, p := range all[:3] {
			require.True(t, p.Silent, p.ID)
		}
		pass(21 * time.Minute)
		require.Equal(t, 1, heartbeats(t, b))
		m.stop(t)
		require.NoError(t, b.Close())
	})
}
