package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// prompt is a backend whose Publish takes a while, and returns as soon as its
// context is done.
type prompt struct {
	backend.Backend
	takes time.Duration

	mu    sync.Mutex
	sizes []int
	lent  []byte // the payload of the last call
}

func (p *prompt) Limits() backend.Limits {
	return backend.Limits{OnceWindow: time.Hour, Prompt: true, Self: p}
}

func (p *prompt) Publish(ctx context.Context, msgs []*backend.Message) error {
	p.mu.Lock()
	p.sizes = append(p.sizes, len(msgs))
	p.lent = msgs[0].Payload
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
	case <-time.After(p.takes):
		return p.Backend.Publish(ctx, msgs)
	}
}

func onPrompt(t *testing.T, o Options, takes time.Duration, f func(t *testing.T, e *Engine, p *prompt)) {
	synctest.Test(t, func(t *testing.T) {
		p := &prompt{Backend: inmemory.New(inmemory.Options{}), takes: takes}
		e := New(p, o)
		f(t, e, p)
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

func one(id string) []*backend.Message {
	return []*backend.Message{{Topic: "t", ID: id, Payload: []byte(id)}}
}

// Who publishes alone writes itself: what it lends is not copied. So does a second
// beside it; those who come meanwhile share a call.
func TestWritesItself(t *testing.T) {
	onPrompt(t, Options{PublishTimeout: time.Minute}, time.Second, func(t *testing.T, e *Engine, p *prompt) {
		ms := one("a")
		require.NoError(t, e.Publish(t.Context(), ms))
		require.Same(t, &ms[0].Payload[0], &p.lent[0])
		require.NotEmpty(t, ms[0].Position)

		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { require.NoError(t, e.Publish(t.Context(), one(fmt.Sprint(i)))) })
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		wg.Wait()
		require.Equal(t, 2*time.Second, time.Since(start)+5*time.Millisecond)
		require.Equal(t, []int{1, 1, 1, 3}, p.sizes)
	})
}

// A caller that writes itself leaves when its context ends, by a deadline or a
// cancel, with an unknown outcome; the next is not disturbed by it.
func TestWritesItselfAndLeaves(t *testing.T) {
	onPrompt(t, Options{PublishTimeout: time.Minute}, 10*time.Second, func(t *testing.T, e *Engine, _ *prompt) {
		for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if errors.Is(want, context.Canceled) {
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
			}
			start := time.Now()
			err := backend.ErrorAt(e.Publish(ctx, one("a")), 0)
			require.Equal(t, time.Second, time.Since(start))
			require.ErrorIs(t, err, backend.ErrUnknownOutcome)
			require.ErrorIs(t, err, want)
			require.False(t, backend.NotStored(err))
			cancel()
			require.NoError(t, e.Publish(t.Context(), one("b")))
		}
	})
}

// Without an end of its own a call ends by the PublishTimeout.
func TestWritesItselfForSoLong(t *testing.T) {
	for _, timeout := range []time.Duration{0, 8 * time.Second} {
		onPrompt(t, Options{PublishTimeout: timeout}, 20*time.Second, func(t *testing.T, e *Engine, _ *prompt) {
			for _, ctx := range []context.Context{context.WithoutCancel(t.Context()), t.Context()} {
				start := time.Now()
				err := backend.ErrorAt(e.Publish(ctx, one("a")), 0)
				if timeout == 0 {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(start), timeout)
				require.GreaterOrEqual(t, time.Since(start), timeout*3/4)
			}
		})
	}
}

// What was certainly not stored is tried again, by the one who writes for all.
func TestWritesItselfAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Backend: inmemory.New(inmemory.Options{})}
		p := &prompt{Backend: w, takes: time.Millisecond}
		e := New(p, Options{PublishTimeout: time.Minute})
		w.fail("publish", backend.ErrUnavailable)
		time.AfterFunc(3*time.Second, func() { w.fail("publish", nil) })
		require.NoError(t, e.Publish(t.Context(), one("a")))
		require.Greater(t, len(w.of("publish")), 2)
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// Shutdown waits for who writes itself, as long as its context lets it.
func TestShutdownWhileOneWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(&prompt{Backend: inmemory.New(inmemory.Options{}), takes: 10 * time.Second}, Options{})
		var wg sync.WaitGroup
		var err error
		wg.Go(func() { err = backend.ErrorAt(e.Publish(t.Context(), one("a")), 0) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, ended := e.Shutdown(ctx)
		require.ErrorIs(t, ended, context.DeadlineExceeded)
		wg.Wait()
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, backend.ErrUnknownOutcome)
		require.ErrorIs(t, err, backend.ErrClosed)
	})
}
