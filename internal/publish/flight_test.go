package publish

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// others keeps publishing to healthy topics from several goroutines, and requires that no call
// fails or takes longer than 250 ms.
func (r *rig) others(topics int, until time.Duration, publishers int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for end := time.Now().Add(until); time.Now().Before(end); {
				start := time.Now()
				require.NoError(r, r.Publish(r.Context(), to(fmt.Sprint("healthy", i%topics), "", fmt.Sprint(i))))
				require.LessOrEqual(r, time.Since(start), 250*time.Millisecond)
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			}
		})
	}
	return &wg
}

// A topic that hangs holds up no other topic, however many calls wait for it.
func TestHungTopic(t *testing.T) {
	for _, hung := range []int{1, 4, 30} {
		for _, slots := range []int{0, 1} {
			inBubble(t, slots, Options{Timeout: 30 * time.Second}, func(r *rig) {
				r.broker.take(time.Millisecond)
				r.broker.set(func(b *broker) {
					b.slow = map[string]time.Duration{}
					for i := range hung {
						b.slow[fmt.Sprint("hung", i)] = time.Hour
					}
				})
				var victims sync.WaitGroup
				for i := range 10 * hung {
					victims.Go(func() {
						err := backend.ErrorAt(r.Publish(r.Context(), to(fmt.Sprint("hung", i%hung), "", "x")), 0)
						require.ErrorIs(r, err, context.DeadlineExceeded)
					})
				}
				synctest.Wait()
				time.Sleep(10 * patience) // until then, a call may join a write whose topics are not known to hang
				r.others(5, time.Second, 16).Wait()
				victims.Wait()
				time.Sleep(time.Minute) // the writes end later than their callers
				synctest.Wait()
				require.LessOrEqual(r, r.broker.mostNow, r.slots*(maxSlotless+1))
				require.Zero(r, r.slotless)
			})
		}
	}
}

// One write that hangs, as on a dead connection, holds up no calls except its own, even if they are
// all of one topic.
func TestHungWrite(t *testing.T) {
	for _, slots := range []int{0, 1} {
		inBubble(t, slots, Options{Timeout: 30 * time.Second}, func(r *rig) {
			r.broker.take(time.Millisecond)
			time.AfterFunc(time.Second, func() {
				r.broker.set(func(b *broker) { b.hangs = 1 })
			})
			var mu sync.Mutex
			failed := 0
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
						start := time.Now()
						if err := r.Publish(r.Context(), to("t", fmt.Sprint(i), "x")); err != nil {
							mu.Lock()
							failed++
							mu.Unlock()
							return
						}
						require.LessOrEqual(r, time.Since(start), 250*time.Millisecond)
					}
				})
			}
			time.Sleep(2 * time.Second)
			fresh := r.others(1, 2*time.Second, 16)
			wg.Wait()
			fresh.Wait()
			require.Equal(r, r.broker.hung, failed, "the calls of the write that hangs")
		})
	}
}

// A topic that hangs has a limited number of writes. When it answers again, its calls are stored,
// and it is written together with others again.
func TestHungTopicIsTriedWithinBounds(t *testing.T) {
	inBubble(t, 2, Options{Timeout: time.Hour}, func(r *rig) {
		r.broker.set(func(b *broker) { b.slow = map[string]time.Duration{"hung": 10 * time.Minute} })
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { require.NoError(r, r.Publish(r.Context(), to("hung", "", fmt.Sprint(i)))) })
			time.Sleep(patience)
		}
		synctest.Wait()
		require.Equal(r, 2*maxSlotlessPerTopic, r.broker.mostNow)
		r.broker.set(func(b *broker) { b.slow = nil })
		wg.Wait()
		require.Len(r, r.stored("hung"), 50)
		require.Empty(r, r.suspects)
		require.Equal(r, 2, r.free)
	})
}

// If a caller leaves a call while it is being written, the next call with its key is not stored
// before it. Calls with other keys, and without a key, don't wait for it.
func TestLeavesInOrder(t *testing.T) {
	inBubble(t, 2, Options{}, func(r *rig) {
		r.broker.set(func(b *broker) { b.slow = map[string]time.Duration{"t": 10 * time.Second} })
		for _, id := range []string{"1", "2"} {
			go func() { _ = r.Publish(r.Context(), to("t", "", id)) }()
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		require.ErrorIs(r, r.Publish(ctx, to("t", "k", "left")), backend.ErrUnknownOutcome)
		r.broker.set(func(b *broker) { b.slow = nil })
		start := time.Now()
		for _, key := range []string{"other", ""} {
			require.NoError(r, r.Publish(r.Context(), to("t", key, "key "+key)))
		}
		require.NoError(r, r.Publish(r.Context(), to("u", "k", "another topic")))
		require.LessOrEqual(r, time.Since(start), patience)
		require.NoError(r, r.Publish(r.Context(), to("t", "k", "next")))
		require.Equal(r, 10*time.Second-902*time.Millisecond, time.Since(start), "the write began after patience")
		require.Equal(r, []string{"key other", "key ", "1", "2", "left", "next"}, r.topic())
		require.Empty(r, r.fences)
	})
}

// Topics and single writes hang, and callers give up, at random. The events that one caller
// publishes with a key are stored in that order, and in the end no slot is lost.
func TestHangingInRandomLives(t *testing.T) {
	lives := uint64(30)
	if os.Getenv("EVENTBUS_NIGHTLY") != "" {
		lives = 100
	}
	for seed := range lives {
		inBubble(t, []int{1, 2, 4}[seed%3], Options{Timeout: 10 * time.Second, MaxPending: 50}, func(r *rig) {
			dice := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return dice.IntN(n)
			}
			slots := r.free
			r.broker.take(time.Millisecond)
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					topic, key := fmt.Sprint("t", i%3), fmt.Sprint("k", i)
					for n := range 40 {
						ctx, cancel := context.WithTimeout(r.Context(), time.Duration(roll(3000))*time.Millisecond)
						_ = r.Publish(ctx, to(topic, key, fmt.Sprintf("%02d", n)))
						cancel()
						time.Sleep(time.Duration(roll(50)) * time.Millisecond)
					}
				})
			}
			for range 60 {
				r.broker.set(func(b *broker) {
					switch roll(5) {
					case 0:
						b.hangs = 1
					case 1:
						b.slow = map[string]time.Duration{"t0": time.Duration(roll(5000)) * time.Millisecond}
					case 2:
						b.slow = nil
					case 3:
						b.takes = time.Duration(roll(300)) * time.Millisecond
					default:
						b.takes = time.Millisecond
					}
				})
				time.Sleep(time.Duration(roll(300)) * time.Millisecond)
			}
			wg.Wait()
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			for i := range 3 {
				last := map[string]string{}
				ms, err := r.broker.Backend.Read(r.Context(), fmt.Sprint("t", i), "", 1<<20)
				require.NoError(r, err)
				for _, m := range ms {
					require.Greater(r, m.ID, last[m.Key], "seed %d, key %s", seed, m.Key)
					last[m.Key] = m.ID
				}
			}
			require.Equal(r, slots, r.free)
			require.Zero(r, r.Publisher.slotless)
			require.Empty(r, r.under)
			require.Empty(r, r.fences)
			require.Zero(r, r.serving)
		})
	}
}
