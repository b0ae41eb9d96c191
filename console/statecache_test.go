package console

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A stateCache holds the topics that were used last, and forgets each a minute after its last use.
func TestStateCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStateCache[int]()
		count := func(topic string) (n int) {
			require.NoError(t, k.use(t.Context(), topic, func(v *int) error { *v++; n = *v; return nil }))
			return n
		}
		kept := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.all)
		}
		for i := range 3 * maxStates {
			count(fmt.Sprint("t", i))
			time.Sleep(time.Millisecond)
			require.LessOrEqual(t, kept(), maxStates)
		}
		require.Equal(t, 2, count(fmt.Sprint("t", 2*maxStates)), "the oldest of the last ones is known")
		require.Equal(t, 1, count("t0"), "an earlier one is forgotten")
		for i := range 10 {
			require.Equal(t, 2+i, count("t0"), "it is in use")
			time.Sleep(stateTime - time.Second)
		}
		require.Equal(t, 1, kept(), "the others are not")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, kept())
	})
}

// One caller at a time uses a value, and a caller whose context ends does not wait.
func TestStateCacheHasOneUserATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newStateCache[int]()
		release := make(chan struct{})
		go k.use(t.Context(), "orders", func(*int) error { <-release; return nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := k.use(ctx, "orders", func(*int) error { t.Error("it was called"); return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(release)
		require.NoError(t, k.use(t.Context(), "orders", func(*int) error { return nil }))
	})
}
