package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// Each caller waits for as long as PublishTimeout allows, the time before there was
// room included, whoever else waits. Its own context ends that earlier.
func TestCallersLeaveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(&slow{inmemory.New(inmemory.Options{})}, Options{PublishTimeout: 10 * time.Second, MaxPending: 4})
		var wg sync.WaitGroup
		publish := func(ctx context.Context, events int, after, leaves time.Duration) {
			start := time.Now()
			wg.Go(func() {
				time.Sleep(after)
				var msgs []*backend.Message
				for i := range events {
					msgs = append(msgs, &backend.Message{Topic: "t", ID: fmt.Sprint(i)})
				}
				err := e.Publish(ctx, msgs)
				require.ErrorIs(t, backend.ErrorAt(err, 0), context.DeadlineExceeded)
				require.Equal(t, leaves, time.Since(start))
			})
		}
		publish(t.Context(), 2, 0, 10*time.Second)
		publish(t.Context(), 2, time.Second, 11*time.Second)
		publish(t.Context(), 2, 1500*time.Millisecond, 11500*time.Millisecond) // has room after 10 s
		publish(t.Context(), 1, 10500*time.Millisecond, 20500*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		publish(ctx, 1, 12*time.Second, 15*time.Second)
		wg.Wait()
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// A call that has waited for room has less time left than one that came later and had
// not to.
func TestTimeBeforeThereWasRoomCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(&slow{inmemory.New(inmemory.Options{})}, Options{PublishTimeout: 10 * time.Second, MaxPending: 3})
		var wg sync.WaitGroup
		for i, events := range []int{2, 2, 1} { // the second has room when the first has left
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				start := time.Now()
				err := e.Publish(t.Context(), append(one("a"), one("b")...)[:events])
				require.ErrorIs(t, backend.ErrorAt(err, 0), context.DeadlineExceeded)
				require.Equal(t, 10*time.Second, time.Since(start), "call %d", i)
			})
		}
		wg.Wait()
		_, err := e.Shutdown(t.Context())
		require.NoError(t, err)
	})
}

// Shutdown fails those who still wait when its context ends, though they would wait
// for ever.
func TestShutdownWhileManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(&slow{inmemory.New(inmemory.Options{})}, Options{})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				start := time.Now()
				err := e.Publish(context.WithoutCancel(t.Context()), one("a"))
				require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrClosed)
				require.Equal(t, time.Second, time.Since(start))
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := e.Shutdown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		wg.Wait()
	})
}
