package publish

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
)

// A caller that finds a free slot writes its messages itself, so their payloads aren't copied. The
// other callers share one write, on copies.
func TestSlotsThenQueue(t *testing.T) {
	inBubble(t, 2, Options{Timeout: time.Minute}, func(r *rig) {
		r.broker.take(patience / 2)
		msgs := one("a")
		require.NoError(r, r.Publish(r.Context(), msgs))
		require.Same(r, &msgs[0].Payload[0], &r.broker.lent[0])
		require.NotEmpty(r, msgs[0].Position)

		var wg sync.WaitGroup
		start := time.Now()
		for i := range 7 {
			wg.Go(func() {
				msgs := one(fmt.Sprint(i))
				require.NoError(r, r.Publish(r.Context(), msgs))
				require.NotEmpty(r, msgs[0].Position)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		require.Equal(r, patience, time.Since(start))
		require.Equal(r, []int{1, 1, 1, 5}, r.broker.calls())
		require.Equal(r, []string{"2", "3", "4", "5", "6"}, r.broker.ids[3], "first come, first served")
	})
}

// Callers and the queue together never have more writes under way than there are slots. Every
// message is stored once.
func TestNeverMoreThanSlots(t *testing.T) {
	for _, slots := range []int{0, 1, 3} {
		inBubble(t, slots, Options{}, func(r *rig) {
			r.broker.take(time.Millisecond)
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					for j := range 20 {
						require.NoError(r, r.Publish(r.Context(), one(fmt.Sprint(i, ".", j))))
						time.Sleep(time.Duration(i%7) * time.Millisecond)
					}
				})
			}
			wg.Wait()
			require.Len(r, r.topic(), 1000)
			want := slots
			if slots == 0 {
				want = 4
			}
			require.Equal(r, want, r.broker.mostNow)
		})
	}
}

// If the backend allows any number of writes, every caller writes itself.
func TestAnyNumberOfPublishers(t *testing.T) {
	inBubble(t, -1, Options{}, func(r *rig) {
		r.broker.take(time.Second)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { require.NoError(r, r.Publish(r.Context(), one("x"))) })
		}
		wg.Wait()
		require.Equal(r, 20, r.broker.mostNow)
	})
}

// One write has at most a thousand messages, eight MiB, or the batch size that the backend states.
func TestWritesAreBounded(t *testing.T) {
	inBubble(t, 1, Options{}, func(r *rig) {
		r.broker.take(time.Second)
		var wg sync.WaitGroup
		publish := func(msgs []*backend.Message) {
			wg.Go(func() { require.NoError(r, r.Publish(r.Context(), msgs)) })
			synctest.Wait()
		}
		large := one("large")
		large[0].Payload = make([]byte, 5<<20)
		other := one("other")
		other[0].Payload = large[0].Payload
		publish(one("first"))
		publish(many(600))
		publish(many(401))
		publish(large)
		publish(other)
		wg.Wait()
		require.Equal(r, []int{1, 600, 402, 1}, r.broker.calls())
	})
}

// A caller leaves when its context ends, whether by a deadline or by cancellation. The outcome of a
// write under way is then unknown. A call that is waiting in the queue is never sent.
func TestCallersLeave(t *testing.T) {
	for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
		inBubble(t, 1, Options{Timeout: time.Minute}, func(r *rig) {
			r.broker.take(80 * time.Millisecond)
			ctx, cancel := context.WithTimeout(r.Context(), 120*time.Millisecond)
			defer cancel()
			if errors.Is(want, context.Canceled) {
				ctx, cancel = context.WithCancel(r.Context())
				time.AfterFunc(120*time.Millisecond, cancel)
			}
			var wg sync.WaitGroup
			call := func(ctx context.Context, id string, check func(err error)) {
				wg.Go(func() { check(backend.ErrorAt(r.Publish(ctx, one(id)), 0)) })
				time.Sleep(10 * time.Millisecond)
			}
			call(r.Context(), "first", func(err error) { require.NoError(r, err) })
			call(ctx, "under way", func(err error) {
				require.ErrorIs(r, err, backend.ErrUnknownOutcome)
				require.ErrorIs(r, err, want)
				require.False(r, backend.NotStored(err))
			})
			call(r.Context(), "with it", func(err error) { require.NoError(r, err) })
			time.Sleep(60 * time.Millisecond)
			call(ctx, "queued", func(err error) {
				require.ErrorIs(r, err, want)
				require.True(r, backend.NotStored(err), "%v", err)
			})
			wg.Wait()
			require.Equal(r, []string{"first", "under way", "with it"}, r.topic())
		})
	}
}

// A call that ends at the moment its slot becomes free is certainly not sent.
func TestLeavesAtTheSameMoment(t *testing.T) {
	for i := range 100 {
		timeouts := [][2]time.Duration{{patience / 2, time.Minute}, {time.Minute, patience / 2}}[i%2]
		inBubble(t, 1, Options{Timeout: timeouts[0]}, func(r *rig) {
			r.broker.take(10 * time.Second)
			ctx, cancel := context.WithTimeout(r.Context(), timeouts[1])
			defer cancel()
			var wg sync.WaitGroup
			for i := range 3 {
				wg.Go(func() {
					err := backend.ErrorAt(r.Publish(ctx, one("x")), 0)
					require.ErrorIs(r, err, context.DeadlineExceeded)
					require.Equal(r, i > 0, backend.NotStored(err), "%v", err)
				})
				synctest.Wait()
			}
			wg.Wait()
			require.Equal(r, []int{1}, r.broker.calls())
		})
	}
}

// The queue retains nothing of a caller that has left.
func TestLeavingTheQueue(t *testing.T) {
	inBubble(t, 1, Options{}, func(r *rig) {
		r.broker.take(time.Hour)
		go func() { _ = r.Publish(r.Context(), one("a")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		for range 100 {
			go func() { _ = r.Publish(ctx, one("b")) }()
		}
		synctest.Wait()
		require.Equal(r, 100, r.queued())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(r, r.queued())
	})
}

// A caller that has left may change its payload, because the queue writes a copy.
func TestWhatIsLeftIsCopied(t *testing.T) {
	inBubble(t, 1, Options{}, func(r *rig) {
		r.broker.take(80 * time.Millisecond)
		go func() { _ = r.Publish(r.Context(), one("first")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.Context(), 120*time.Millisecond)
		defer cancel()
		msgs := one("second")
		require.Error(r, r.Publish(ctx, msgs))
		clear(msgs[0].Payload)
		msgs[0].ID = "changed"
		time.Sleep(time.Minute)
		ms, err := r.broker.Backend.Read(r.Context(), "t", "", 10)
		require.NoError(r, err)
		require.Equal(r, "second", ms[1].ID)
		require.Equal(r, "second", string(ms[1].Payload))
	})
}

// Each caller waits as long as Timeout allows, however many others are waiting. The time spent
// waiting to enter counts.
func TestCallersLeaveInTime(t *testing.T) {
	for _, slots := range []int{1, 4} {
		inBubble(t, slots, Options{Timeout: 10 * time.Second, MaxPending: 4}, func(r *rig) {
			r.broker.take(time.Hour)
			var wg sync.WaitGroup
			publish := func(ctx context.Context, n int, after, leaves time.Duration) {
				start := time.Now()
				wg.Go(func() {
					time.Sleep(after)
					err := backend.ErrorAt(r.Publish(ctx, many(n)), 0)
					require.ErrorIs(r, err, context.DeadlineExceeded)
					require.Equal(r, leaves, time.Since(start))
				})
			}
			publish(r.Context(), 2, 0, 10*time.Second)
			publish(r.Context(), 2, time.Second, 11*time.Second)
			publish(r.Context(), 2, 1500*time.Millisecond, 11500*time.Millisecond) // enters after 10 s
			publish(r.Context(), 1, 10500*time.Millisecond, 20500*time.Millisecond)
			ctx, cancel := context.WithTimeout(r.Context(), 15*time.Second)
			defer cancel()
			publish(ctx, 1, 12*time.Second, 15*time.Second)
			wg.Wait()
		})
	}
}

// Close waits for every caller as long as its context allows, and then ends them wherever they are
// waiting.
func TestCloseWhileManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Options{MaxPending: 5})
		r.broker.take(time.Hour)
		var wg sync.WaitGroup
		for i := range 8 { // two are writing, three wait in the queue, three wait to enter
			wg.Go(func() {
				start := time.Now()
				err := backend.ErrorAt(r.Publish(context.WithoutCancel(r.Context()), one("a")), 0)
				require.ErrorIs(r, err, backend.ErrClosed)
				require.Equal(r, i < 2, errors.Is(err, backend.ErrUnknownOutcome), "call %d: %v", i, err)
				require.Equal(r, patience/2, time.Since(start))
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience/2)
		defer cancel()
		require.ErrorIs(r, r.Close(ctx), context.DeadlineExceeded)
		wg.Wait()
		require.ErrorIs(r, r.Publish(r.Context(), one("late")), backend.ErrClosed)
	})
}

// If Publish returns no error, the message has its position, even if the caller was about to leave.
func TestWhatIsStoredHasAPosition(t *testing.T) {
	inBubble(t, 2, Options{}, func(r *rig) {
		r.broker.take(100 * time.Microsecond)
		for range 50 {
			ctx, cancel := context.WithCancel(r.Context())
			r.broker.set(func(b *broker) { b.stored = cancel })
			var callers sync.WaitGroup
			for range 30 {
				callers.Go(func() {
					msgs := one("x")
					if r.Publish(ctx, msgs) == nil {
						require.NotEmpty(r, msgs[0].Position)
					}
				})
			}
			callers.Wait()
			cancel()
		}
	})
}
