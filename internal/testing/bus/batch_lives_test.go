package bus_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/eventbustest"
)

// In random lives, with calls that fail, panic or take long and with drains in between,
// each event is handled. If there is one member at a time, the order of each key is kept.
func TestBatchesInRandomLives(t *testing.T) {
	for seed := range uint64(40) {
		on(t, func(t *testing.T, bus *eventbustest.Bus) {
			const events = 120
			r := rand.New(rand.NewPCG(seed, 22))
			var mu sync.Mutex // guards r, handled and last
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			handled, last, alone := map[string]bool{}, map[string]string{}, seed%2 == 0
			member := func() *eventbus.Subscription {
				s, err := bus.SubscribeBatch(t.Context(), "orders",
					eventbus.SubscribeOptions{Group: "g", Concurrency: 1 + draw(3), Retry: eventbus.Retry{MaxAttempts: -1, Max: 10 * time.Second}},
					eventbus.Batch{MaxSize: 1 + draw(9), MaxBytes: int64(draw(2) * 40), MaxWait: time.Duration(draw(2000)) * time.Millisecond},
					func(_ context.Context, ds []*eventbus.Delivery) []error {
						if draw(10) == 0 {
							time.Sleep(20 * time.Second)
						}
						if draw(10) == 0 {
							panic("random")
						}
						errs := make([]error, len(ds))
						for i, d := range ds {
							if draw(5) == 0 {
								errs[i] = errors.New("random")
								continue
							}
							mu.Lock()
							if alone && d.Key != "" && d.ID <= last[d.Key] {
								errs[i] = eventbus.Permanent(fmt.Errorf("%s was handled after %s", d.ID, last[d.Key]))
							}
							handled[d.ID], last[d.Key] = true, d.ID
							mu.Unlock()
						}
						return errs
					})
				require.NoError(t, err)
				return s
			}
			one, es := member(), numbered(events)
			if !alone {
				member()
			}
			for i, e := range es {
				if i%4 > 0 {
					e.Key = fmt.Sprint(i % 7)
				}
				require.NoError(t, bus.Publish(t.Context(), "orders", e))
				if i%10 == 0 {
					time.Sleep(3 * time.Second)
				}
				if !alone && i%40 == 39 {
					require.NoError(t, one.Drain(t.Context()))
					one = member()
				}
			}
			require.NoError(t, bus.WaitIdle(t.Context()))
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, handled, events, "seed %d", seed)
			require.Empty(t, bus.Published("orders.dlq"), "seed %d", seed)
		})
	}
}
