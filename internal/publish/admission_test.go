package publish

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Waiting calls enter in order, so a large one gets in even if small ones keep coming.
func TestLargeIsNotStarved(t *testing.T) {
	for _, o := range []Options{{MaxPending: 10}, {MaxPendingBytes: 100}} {
		inBubble(t, -1, o, func(r *rig) {
			r.broker.take(time.Second)
			ctx, cancel := context.WithCancel(r.Context())
			var wg sync.WaitGroup
			for i := range 20 { // ten have entered at any time
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Millisecond)
					for ctx.Err() == nil {
						m := one("small")
						m[0].Payload = make([]byte, 4) // ten bytes with its topic and ID
						require.NoError(r, r.Publish(r.Context(), m))
					}
				})
			}
			time.Sleep(5 * time.Second)
			start := time.Now()
			large := many(8)
			large[0].Payload = make([]byte, 70)
			require.NoError(r, r.Publish(r.Context(), large))
			require.LessOrEqual(r, time.Since(start), 4*time.Second)
			cancel()
			wg.Wait()
		})
	}
}

// A call that is larger than the limit enters alone.
func TestLargerThanTheBound(t *testing.T) {
	inBubble(t, -1, Options{MaxPending: 5}, func(r *rig) {
		r.broker.take(time.Second)
		var wg sync.WaitGroup
		for i, n := range []int{2, 50, 2} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				require.NoError(r, r.Publish(r.Context(), many(n)))
			})
		}
		start := time.Now()
		wg.Wait()
		require.Equal(r, 3*time.Second, time.Since(start))
		require.Equal(r, 1, r.broker.mostNow)
	})
}

// A call that gives up lets the calls behind it enter.
func TestGivingUpLetsOthersIn(t *testing.T) {
	inBubble(t, -1, Options{MaxPending: 5}, func(r *rig) {
		r.broker.take(time.Minute)
		go func() { _ = r.Publish(r.Context(), many(4)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		go func() {
			err := backend.ErrorAt(r.Publish(ctx, many(3)), 0)
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.True(r, backend.NotStored(err))
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(r, r.Publish(r.Context(), one("small")))
		require.Equal(r, time.Second+time.Minute, time.Since(start))
	})
}

// With Reject, or after the timeout, the error names the reason and nothing is sent.
func TestBackpressure(t *testing.T) {
	for _, whenFull := range []WhenFull{Reject, Wait} {
		reject := whenFull == Reject
		t.Run(fmt.Sprintf("reject=%v", reject), func(t *testing.T) {
			inBubble(t, -1, Options{MaxPending: 1, WhenFull: whenFull, Timeout: 2 * time.Second}, func(r *rig) {
				r.broker.take(3 * time.Second) // longer than the timeout, which this backend ignores
				go func() { require.NoError(r, r.Publish(r.Context(), one("a"))) }()
				synctest.Wait()
				start := time.Now()
				err := backend.ErrorAt(r.Publish(r.Context(), one("b")), 0)
				require.ErrorIs(r, err, ErrBackpressure)
				require.True(r, backend.NotStored(err))
				require.Equal(r, reject, time.Since(start) == 0)
				require.Equal(r, []int{1}, r.broker.calls())
				time.Sleep(time.Minute)
			})
		})
	}
}

// After Close, calls that are waiting for capacity still enter, in order.
func TestCloseServesWaitingCalls(t *testing.T) {
	inBubble(t, -1, Options{MaxPending: 1}, func(r *rig) {
		r.broker.take(time.Second)
		for range 3 {
			go func() { require.NoError(r, r.Publish(r.Context(), one("a"))) }()
		}
		synctest.Wait()
		require.NoError(r, r.Close(r.Context()))
		require.Equal(r, []int{1, 1, 1}, r.broker.calls())
	})
}
