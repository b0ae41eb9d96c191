package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// immediate is a backend that waits for nothing, and fails as often as it is told.
type immediate struct {
	backend.Backend
	fails  atomic.Int64 // before it stores something
	calls  atomic.Int64
	err    error
	stored func() // is called behind each call
}

func (i *immediate) Limits() backend.Limits { return backend.Limits{Immediate: true, Self: i} }

func (i *immediate) Publish(ctx context.Context, msgs []*backend.Message) error {
	i.calls.Add(1)
	if i.fails.Add(-1) >= 0 {
		return i.err
	}
	if i.stored != nil {
		defer i.stored()
	}
	return i.Backend.Publish(ctx, msgs)
}

func onImmediate(t *testing.T, o Options, f func(t *testing.T, e *Engine, i *immediate)) {
	synctest.Test(t, func(t *testing.T) {
		i := &immediate{
			Backend: inmemory.New(inmemory.Options{}),
			err:     fmt.Errorf("%w: the door is shut", backend.ErrUnavailable),
		}
		e := New(i, o)
		f(t, e, i)
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// Where a backend waits for nothing each caller has a call of its own, in its own
// goroutine: there is no writer.
func TestEachCallerPublishes(t *testing.T) {
	onImmediate(t, Options{}, func(t *testing.T, e *Engine, i *immediate) {
		for range 10 {
			go func() { _ = e.Publish(t.Context(), one("x")) }()
		}
		synctest.Wait()
		require.EqualValues(t, 10, i.calls.Load())
		e.publisher.queue.Wait() // at once: nothing went through it
	})
}

// What fails is repeated as ever, in the time that the call has.
func TestImmediateIsRepeated(t *testing.T) {
	onImmediate(t, Options{PublishTimeout: time.Minute}, func(t *testing.T, e *Engine, i *immediate) {
		i.fails.Store(3)
		m := one("x")
		require.NoError(t, e.Publish(t.Context(), m))
		require.NotEmpty(t, m[0].Position)
		require.EqualValues(t, 4, i.calls.Load())

		i.fails.Store(1 << 40)
		start := time.Now()
		err := backend.ErrorAt(e.Publish(t.Context(), one("y")), 0)
		require.ErrorIs(t, err, i.err)
		require.InDelta(t, time.Minute, time.Since(start), float64(10*time.Second))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		err = backend.ErrorAt(e.Publish(ctx, one("z")), 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, backend.NotStored(err))
		require.Equal(t, time.Second, time.Since(start))
		i.fails.Store(0)
	})
}

// A backend that embeds one that waits for nothing may wait all the same: nothing is
// taken from what is stated of that one.
func TestEmbeddedIsNotImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(&slow{inmemory.New(inmemory.Options{})}, Options{PublishTimeout: time.Second})
		start := time.Now()
		err := backend.ErrorAt(e.Publish(t.Context(), one("x")), 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		_, err = e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// slow is a backend in memory whose Publish waits, as one that injects faults.
type slow struct{ *inmemory.Backend }

func (s *slow) Publish(ctx context.Context, msgs []*backend.Message) error {
	select {
	case <-time.After(time.Hour):
		return s.Backend.Publish(ctx, msgs)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
	}
}

// What a caller publishes after it has left a large call, which a writer stores in
// portions, comes behind it: the caller does not overtake what it has left.
func TestImmediateLeavesInOrder(t *testing.T) {
	onImmediate(t, Options{}, func(t *testing.T, e *Engine, i *immediate) {
		ctx, cancel := context.WithCancel(t.Context())
		i.stored = func() {
			cancel()
			time.Sleep(time.Millisecond) // as if the processor were another's
		}
		large := make([]*backend.Message, messagesPerWrite+1)
		for n := range large {
			large[n] = &backend.Message{Topic: "t", ID: fmt.Sprint(n), Key: "k"}
		}
		require.ErrorIs(t, e.Publish(ctx, large), backend.ErrUnknownOutcome)
		next := &backend.Message{Topic: "t", ID: "next", Key: "k"}
		require.NoError(t, e.Publish(t.Context(), []*backend.Message{next}))
		synctest.Wait()
		all, err := i.Backend.(backend.Reader).Read(t.Context(), "t", "", 2*len(large))
		require.NoError(t, err)
		require.Len(t, all, len(large)+1)
		require.Equal(t, "next", all[len(large)].ID, "what was left is behind it")
	})
}
