package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// An owner that was cut off from the broker does not store a failed key when it is back, because
// the next owner may have handled the event meanwhile.
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

// A new owner goes on although the events of the one before use all bytes that it may hold.
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

func (c *cut) Read(ctx context.Context, topic string, from backend.Start, most int) (ms []backend.Message, err error) {
	err = c.do(func() error { ms, err = c.Backend.Read(ctx, topic, from, most); return err })
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

func (s *cutSource) Receive(ctx context.Context, most int, size int64) (ds []backend.Delivery, err error) {
	err = s.line.do(func() error { ds, err = s.Source.Receive(ctx, most, size); return err })
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
