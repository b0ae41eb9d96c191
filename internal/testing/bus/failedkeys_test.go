package bus_test

import (
	"context"
	"errors"
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
	"github.com/seed41896749/eventbus/observer"
)

// An event whose key cannot be handed on is not acknowledged, and the state names the topic, with a
// dead-letter topic and without one.
func TestFailedKeysAreStoredBeforeTheAcknowledgement(t *testing.T) {
	for _, deadLetter := range []string{"orders.dead", eventbus.DiscardDeadLetters} {
		t.Run(deadLetter, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &denier{Backend: inmemory.New(inmemory.Options{}), suffix: ".partitions.failed"}
				b.denies.Store(true)
				first := openFailing(t, b, deadLetter)
				require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "k"}))
				time.Sleep(20 * time.Minute)
				state, err := first.sub.State()
				require.Equal(t, observer.Degraded, state)
				require.ErrorContains(t, err, "dead letters cannot be stored in orders.partitions.failed")
				stats, err := first.sub.Stats(t.Context())
				require.NoError(t, err)
				require.Equal(t, int64(1), stats.InFlight, "the event is not acknowledged")
				require.LessOrEqual(t, b.count(t, "orders.dead"), 1, "the letter is stored once")
				b.denies.Store(false)
				time.Sleep(5 * time.Second)
				state, err = first.sub.State()
				require.NoError(t, err)
				require.Equal(t, observer.Running, state)
				stats, err = first.sub.Stats(t.Context())
				require.NoError(t, err)
				require.Zero(t, stats.InFlight)
				require.NoError(t, first.Shutdown(t.Context()))

				second := openFailing(t, b, deadLetter)
				require.NoError(t, second.Publish(t.Context(), "orders", &eventbus.Event{ID: "later", Key: "k"}, &eventbus.Event{ID: "fine", Key: "other"}))
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{"fine"}, second.runs())
				require.Equal(t, []string{"k"}, second.sub.FailedKeys())
				require.NoError(t, second.Shutdown(t.Context()))
			})
		})
	}
}

// While the dead letter cannot be stored, the key is stored once. ReleaseKey removes it.
func TestFailedKeyIsStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &denier{Backend: inmemory.New(inmemory.Options{}), suffix: "orders.dead"}
		b.denies.Store(true)
		first := openFailing(t, b, "orders.dead")
		require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "k"}))
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, b.count(t, "orders.partitions.failed"))
		b.denies.Store(false)
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, b.count(t, "orders.dead"))
		require.True(t, first.sub.ReleaseKey("k"))
		require.Zero(t, b.count(t, "orders.partitions.failed"))
		require.NoError(t, first.Shutdown(t.Context()))
	})
}

// A key that fails again while ReleaseKey removes it is handed on.
func TestFailedKeyDuringItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &denier{Backend: inmemory.New(inmemory.Options{}), suffix: ".partitions.failed"}
		first := openFailing(t, b, "")
		require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "k"}))
		time.Sleep(5 * time.Second)
		b.slow.Store(int64(2 * time.Second))
		again := make(chan error)
		go func() {
			time.Sleep(time.Second)
			again <- first.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad again", Key: "k"})
		}()
		require.True(t, first.sub.ReleaseKey("k"))
		require.NoError(t, <-again)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"bad", "bad again"}, first.runs())
		require.NoError(t, first.Shutdown(t.Context()))
		second := openFailing(t, b, "")
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"k"}, second.sub.FailedKeys())
		require.NoError(t, second.Shutdown(t.Context()))
	})
}

// If the broker cannot remove the key, ReleaseKey ends in time and reports that.
func TestReleaseOfAFailedKeyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &denier{Backend: inmemory.New(inmemory.Options{}), suffix: ".partitions.failed"}
		first := openFailing(t, b, "")
		require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: "bad", Key: "k"}))
		time.Sleep(5 * time.Second)
		b.denies.Store(true)
		began := time.Now()
		require.True(t, first.sub.ReleaseKey("k"))
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		synctest.Wait()
		require.Contains(t, strings.Join(first.failures(), "\n"), "the next owner of partition 0 will still treat the released key as failed")
		require.NotContains(t, strings.Join(first.failures(), "\n"), "\"k\"", "keys may be private")
		require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: "again", Key: "k"}))
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"bad", "again"}, first.runs())
		require.NoError(t, first.Shutdown(t.Context()))
		b.denies.Store(false)

		second := openFailing(t, b, "")
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"k"}, second.sub.FailedKeys())
		require.True(t, second.sub.ReleaseKey("k"))
		require.NoError(t, second.Shutdown(t.Context()))
		third := openFailing(t, b, "")
		time.Sleep(10 * time.Second)
		require.Empty(t, third.sub.FailedKeys())
		require.NoError(t, third.Shutdown(t.Context()))
	})
}

// More keys than an owner hands on hold for this owner alone. A notice says so once.
func TestTooManyFailedKeysAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New(inmemory.Options{})
		first := openFailing(t, b, "")
		for i := range 1010 {
			require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: fmt.Sprintf("bad-%d", i), Key: fmt.Sprint("key ", i)}))
		}
		time.Sleep(30 * time.Second)
		require.Len(t, first.sub.FailedKeys(), 1010)
		require.Equal(t, 1, strings.Count(strings.Join(first.notices(), "\n"), "more than 1000 keys have failed for good"))
		require.NoError(t, first.Shutdown(t.Context()))
		second := openFailing(t, b, "")
		time.Sleep(10 * time.Second)
		require.Len(t, second.sub.FailedKeys(), 1000)
		require.NoError(t, second.Shutdown(t.Context()))
	})
}

// A failingMember is a member of a group with FailAll, in a topic with one partition. Events whose
// ID begins with "bad" fail.
type failingMember struct {
	*eventbus.Bus
	sub *eventbus.Subscription

	mu            sync.Mutex
	ran           []string
	failed, notes []string
}

func openFailing(t *testing.T, b backend.Backend, deadLetter string) *failingMember {
	m := &failingMember{}
	add := func(to *[]string, text string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		*to = append(*to, text)
	}
	var err error
	m.Bus, err = eventbus.New(lentBackend{b}, eventbus.Options{
		Observer: observer.Observer{
			Failed:  func(f observer.Failed) { add(&m.failed, f.Err.Error()) },
			Noticed: func(n observer.Noticed) { add(&m.notes, n.Text) },
		},
		Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 1}},
	})
	require.NoError(t, err)
	m.sub, err = m.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{
		Group: "g", OnFailure: eventbus.FailAll, DeadLetter: deadLetter, Retry: eventbus.Retry{MaxAttempts: 1},
	}, func(_ context.Context, d *eventbus.Delivery) error {
		add(&m.ran, d.ID)
		if strings.HasPrefix(d.ID, "bad") {
			return errors.New("bad")
		}
		return nil
	})
	require.NoError(t, err)
	return m
}

func (m *failingMember) runs() []string { return m.copy(&m.ran) }

func (m *failingMember) failures() []string { return m.copy(&m.failed) }

func (m *failingMember) notices() []string { return m.copy(&m.notes) }

func (m *failingMember) copy(of *[]string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(*of)
}

// A lentBackend stays open after Close.
type lentBackend struct{ backend.Backend }

func (l lentBackend) Unwrap() backend.Backend { return l.Backend }

func (lentBackend) Close() error { return nil }

// A denier may refuse to store messages in topics with the suffix, and to remove them.
type denier struct {
	*inmemory.Backend
	suffix string
	denies atomic.Bool
	slow   atomic.Int64 // how long Remove takes
}

func (d *denier) refuses(topic string) bool {
	return d.denies.Load() && strings.HasSuffix(topic, d.suffix)
}

func (d *denier) Publish(ctx context.Context, ms []*backend.Message) error {
	errs := make([]error, len(ms))
	for i, m := range ms {
		if d.refuses(m.Topic) {
			errs[i] = backend.ErrDenied
		} else {
			errs[i] = d.Backend.Publish(ctx, []*backend.Message{m})
		}
	}
	return backend.AsBatchError(errs)
}

func (d *denier) Remove(ctx context.Context, topic string, positions []string) error {
	if d.refuses(topic) {
		return backend.ErrDenied
	}
	time.Sleep(time.Duration(d.slow.Load()))
	return d.Backend.Remove(ctx, topic, positions)
}

func (d *denier) count(t *testing.T, topic string) int {
	ms, err := d.Read(t.Context(), topic, backend.StartEarliest, 1e5)
	if !errors.Is(err, backend.ErrGone) {
		require.NoError(t, err)
	}
	return len(ms)
}

// An owner that was cut off from the broker does not store a failed key when it is back, because
// the next owner may have handled the event in the meantime.
func TestStaleOwnerStoresNoFailedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		line := &cut{Backend: mem}
		o := eventbus.SubscribeOptions{Group: "g", OnFailure: eventbus.FailAll, Retry: eventbus.Retry{MaxAttempts: 1}, Lease: 6 * time.Second}
		first, _ := openMember(t, line, o, func(context.Context, *eventbus.Delivery) error {
			line.off.Store(true)
			return errors.New("bad")
		})
		time.Sleep(3 * time.Second)
		var ran atomic.Int64
		second, sub := openMember(t, mem, o, func(context.Context, *eventbus.Delivery) error { ran.Add(1); return nil })
		require.NoError(t, second.Publish(t.Context(), "orders", &eventbus.Event{ID: "one", Key: "k"}))
		time.Sleep(20 * time.Second)
		require.Equal(t, []int{0}, sub.Partitions())
		require.EqualValues(t, 1, ran.Load())
		line.off.Store(false)
		time.Sleep(20 * time.Second)
		_, err := mem.Read(t.Context(), "orders.partitions.failed", backend.StartEarliest, 1)
		require.ErrorIs(t, err, backend.ErrGone)
		require.NoError(t, first.Shutdown(t.Context()))
		require.NoError(t, second.Shutdown(t.Context()))
	})
}

// A new owner continues although the previous owner's events use all bytes that it may hold.
func TestNewOwnerWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := inmemory.New(inmemory.Options{})
		line := &cut{Backend: mem}
		o := eventbus.SubscribeOptions{Group: "g", MaxBytes: 1 << 20, Concurrency: 2, Lease: 6 * time.Second}
		first, _ := openMember(t, line, o, func(ctx context.Context, _ *eventbus.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		for i := range 40 {
			require.NoError(t, first.Publish(t.Context(), "orders", &eventbus.Event{ID: fmt.Sprint(i), Key: "k", Payload: make([]byte, 100<<10)}))
		}
		time.Sleep(5 * time.Second)
		line.off.Store(true)
		time.Sleep(20 * time.Second)
		var ran atomic.Int64
		second, _ := openMember(t, mem, o, func(context.Context, *eventbus.Delivery) error { ran.Add(1); return nil })
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 40, ran.Load())
		line.off.Store(false)
		require.NoError(t, second.Shutdown(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = first.Shutdown(ctx) // its handlers have lost their events
	})
}

// openMember opens a bus with a member of a topic with one partition.
func openMember(t *testing.T, b backend.Backend, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Bus, *eventbus.Subscription) {
	bus, err := eventbus.New(lentBackend{b}, eventbus.Options{Topics: map[string]eventbus.TopicOptions{"orders": {Partitions: 1}}})
	require.NoError(t, err)
	sub, err := bus.Subscribe(t.Context(), "orders", o, h)
	require.NoError(t, err)
	return bus, sub
}

// A cut backend cannot reach its broker while it is off.
type cut struct {
	*inmemory.Backend
	off atomic.Bool
}

func (c *cut) do(f func() error) error {
	if c.off.Load() {
		return backend.ErrUnavailable
	}
	return f()
}

func (c *cut) Publish(ctx context.Context, ms []*backend.Message) error {
	return c.do(func() error { return c.Backend.Publish(ctx, ms) })
}

func (c *cut) Read(ctx context.Context, topic string, from backend.Start, limit int) (ms []backend.Message, err error) {
	err = c.do(func() error { ms, err = c.Backend.Read(ctx, topic, from, limit); return err })
	return ms, err
}

func (c *cut) Remove(ctx context.Context, topic string, positions []string) error {
	return c.do(func() error { return c.Backend.Remove(ctx, topic, positions) })
}

func (c *cut) Attach(ctx context.Context, config backend.Config) (s backend.Source, err error) {
	err = c.do(func() error { s, err = c.Backend.Attach(ctx, config); return err })
	if err != nil {
		return nil, err
	}
	extender, _ := backend.As[backend.Extender](s)
	delayer, _ := backend.As[backend.Delayer](s)
	return &cutSource{s, extender, delayer, c}, nil
}

type cutSource struct {
	backend.Source
	extender backend.Extender
	delayer  backend.Delayer
	line     *cut
}

func (s *cutSource) Receive(ctx context.Context, limit int, size int64) (ds []backend.Delivery, err error) {
	err = s.line.do(func() error { ds, err = s.Source.Receive(ctx, limit, size); return err })
	return ds, err
}

func (s *cutSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.line.do(func() error { return s.Source.Ack(ctx, ds) })
}

func (s *cutSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.line.do(func() error { return s.extender.Extend(ctx, ds) })
}

func (s *cutSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	return s.line.do(func() error { return s.delayer.Delay(ctx, ds) })
}
