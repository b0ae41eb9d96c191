package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// callers records the outcomes of calls that run in the background.
type callers struct {
	*rig
	mu   sync.Mutex
	errs map[string]error // of the calls that have returned
}

// publish starts a call with one message, and waits until the call has returned or blocks.
func (c *callers) publish(id string) {
	go func() {
		err := backend.ErrorAt(c.Publish(c.Context(), one(id)), 0)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs[id] = err
	}()
	synctest.Wait()
}

// dropped requires that exactly these calls were dropped so far.
func (c *callers) dropped(ids ...string) {
	c.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for id, err := range c.errs {
		if errors.Is(err, ErrDropped) {
			require.True(c, backend.NotStored(err), err)
			got = append(got, id)
		}
	}
	require.ElementsMatch(c, ids, got, "dropped calls")
}

// withCalls runs f on a rig whose broker takes a second for a call.
func withCalls(t *testing.T, slots int, o Options, f func(c *callers)) {
	inBubble(t, slots, o, func(r *rig) {
		r.broker.take(time.Second)
		c := &callers{rig: r, errs: map[string]error{}}
		f(c)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, size{}, r.in, "all calls have left")
	})
}

// DropNewest drops a call that doesn't fit, at once.
func TestDropNewest(t *testing.T) {
	withCalls(t, 1, Options{MaxPending: 2, WhenFull: DropNewest}, func(c *callers) {
		for _, id := range []string{"a", "b", "c"} {
			c.publish(id)
		}
		c.dropped("c")
		time.Sleep(time.Minute)
		require.Equal(c, []string{"a", "b"}, c.topic())
	})
}

// DropOldest drops the call that has waited longest, at once. It doesn't drop a call under way.
func TestDropOldest(t *testing.T) {
	withCalls(t, 1, Options{MaxPending: 3, WhenFull: DropOldest}, func(c *callers) {
		for _, id := range []string{"under way", "b", "c"} {
			c.publish(id)
		}
		c.dropped()
		c.publish("d")
		c.dropped("b")
		c.publish("e")
		c.publish("f")
		c.dropped("b", "c", "d")
		time.Sleep(time.Minute)
		require.Equal(c, []string{"under way", "e", "f"}, c.topic())
	})
}

// If the calls under way fill the publisher, or if a call is larger than the capacity that could be
// freed, DropOldest drops the new call and no other.
func TestDropOldestWithoutRoom(t *testing.T) {
	withCalls(t, -1, Options{MaxPending: 2, WhenFull: DropOldest}, func(c *callers) {
		for _, id := range []string{"a", "b", "c"} {
			c.publish(id)
		}
		c.dropped("c")
	})
	withCalls(t, 1, Options{MaxPending: 3, WhenFull: DropOldest}, func(c *callers) {
		for _, id := range []string{"a", "b", "c"} {
			c.publish(id)
		}
		err := backend.ErrorAt(c.Publish(c.Context(), many(10)), 0)
		require.ErrorIs(c, err, ErrDropped)
		c.dropped()
		time.Sleep(time.Minute)
		require.NoError(c, c.Publish(c.Context(), many(10)), "alone")
	})
	withCalls(t, 1, Options{MaxPendingBytes: 120, WhenFull: DropOldest}, func(c *callers) {
		for _, id := range []string{"forty bytes of payload, and more of them", "b"} {
			c.publish(id)
		}
		m := one("c")
		m[0].Payload = make([]byte, 50)
		require.ErrorIs(c, c.Publish(c.Context(), m), ErrDropped)
		c.dropped()
	})
}

// A call that is waiting for another try can be dropped if no try can have stored it.
func TestDropOldestBetweenTries(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		t.Run(fmt.Sprintf("unknown=%v", unknown), func(t *testing.T) {
			withCalls(t, 1, Options{MaxPending: 1, WhenFull: DropOldest}, func(c *callers) {
				c.broker.take(0)
				c.broker.fail(backend.ErrUnavailable)
				if unknown {
					c.broker.fail(backend.ErrUnknownOutcome)
				}
				go func() {
					m := one("first")
					m[0].Once = true
					err := backend.ErrorAt(c.Publish(c.Context(), m), 0)
					c.mu.Lock()
					defer c.mu.Unlock()
					c.errs["first"] = err
				}()
				time.Sleep(20 * time.Second)
				c.publish("second")
				if unknown {
					c.dropped("second")
				} else {
					c.dropped("first")
				}
				c.broker.fail(nil)
				time.Sleep(time.Minute)
				require.Len(c, c.topic(), 1)
			})
		})
	}
}

// Calls are dropped in the order in which they entered, even after failed tries.
func TestDropOldestKeepsTheOrderAfterTries(t *testing.T) {
	withCalls(t, 1, Options{MaxPending: 3, WhenFull: DropOldest}, func(c *callers) {
		c.broker.take(0)
		c.broker.fail(backend.ErrUnavailable)
		for _, id := range []string{"a", "b", "c"} {
			c.publish(id)
		}
		time.Sleep(20 * time.Second)
		c.publish("d")
		c.dropped("a")
		time.Sleep(20 * time.Second)
		c.publish("e")
		c.dropped("a", "b")
		c.broker.fail(nil)
	})
}

// Calls and failures are random. A dropped message is not stored, a message without an error is
// stored once, and in the end all capacity is free.
func TestDroppingInRandomLives(t *testing.T) {
	for seed := range uint64(60) {
		inBubble(t, []int{-1, 1, 4}[seed%3], Options{MaxPending: 5, WhenFull: []WhenFull{DropNewest, DropOldest}[seed%2], Timeout: 10 * time.Second}, func(r *rig) {
			dice := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			stored, dropped := map[string]bool{}, map[string]bool{}
			var wg sync.WaitGroup
			for i := range 200 {
				switch dice.IntN(12) {
				case 0:
					r.broker.fail(backend.ErrUnavailable)
				case 1, 2:
					r.broker.fail(nil)
				case 3:
					r.broker.take(time.Duration(dice.IntN(2000)) * time.Millisecond)
				}
				msgs := make([]*backend.Message, 1+dice.IntN(3))
				for j := range msgs {
					msgs[j] = &backend.Message{Topic: "t", ID: fmt.Sprint(i, ".", j)}
				}
				ctx, cancel := context.WithTimeout(r.Context(), time.Duration(dice.IntN(20_000))*time.Millisecond)
				wg.Go(func() {
					defer cancel()
					err := r.Publish(ctx, msgs)
					mu.Lock()
					defer mu.Unlock()
					for j, m := range msgs {
						e := backend.ErrorAt(err, j)
						stored[m.ID] = e == nil
						dropped[m.ID] = errors.Is(e, ErrDropped)
						require.False(t, dropped[m.ID] && !backend.NotStored(e), e)
					}
				})
				time.Sleep(time.Duration(dice.IntN(200)) * time.Millisecond)
			}
			r.broker.fail(nil)
			wg.Wait()
			require.Equal(t, size{}, r.in)
			there, drops := map[string]int{}, 0
			for _, id := range r.topic() {
				there[id]++
			}
			for id := range stored {
				require.False(t, stored[id] && there[id] != 1, "%s is stored %d times, want once", id, there[id])
				require.False(t, dropped[id] && there[id] > 0, "%s was dropped and is stored", id)
				if dropped[id] {
					drops++
				}
			}
			require.NotZero(t, drops)
		})
	}
}
