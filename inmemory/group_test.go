package inmemory_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
)

// After any mix of receiving, delaying, extending and acknowledging, Receive delivers
// exactly the lowest positions of all due messages.
func TestLowestOfAllThatIsDue(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			b := open(t, inmemory.Options{})
			src := attach(t, b, "billing")
			due := map[string]time.Time{}         // of all unsettled messages, by position
			last := map[string]backend.Delivery{} // receipts
			now, cancelled := time.Now, func() context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
				t.Cleanup(cancel)
				return ctx
			}
			for range 400 {
				one := func() backend.Delivery { // a delivery that is held
					positions := []string{}
					for p := range last {
						positions = append(positions, p)
					}
					slices.Sort(positions)
					return last[positions[random.IntN(len(positions))]]
				}
				switch n := random.IntN(8); {
				case n == 0:
					m := &backend.Message{Topic: "orders"}
					require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
					due[m.Position] = now()
				case n == 1:
					time.Sleep(time.Duration(random.IntN(20)) * time.Second)
				case n < 5 || len(last) == 0:
					limit := 1 + random.IntN(4)
					want := []string{}
					for p, at := range due {
						if !at.After(now()) {
							want = append(want, p)
						}
					}
					slices.Sort(want)
					want = want[:min(limit, len(want))]
					ctx := t.Context()
					if len(want) == 0 {
						ctx = cancelled()
					}
					ds, _ := src.Receive(ctx, limit, 0)
					got := []string{}
					for _, d := range ds {
						got = append(got, d.Position)
						due[d.Position], last[d.Position] = now().Add(lease), d
					}
					require.Equal(t, want, got, "seed %d", seed)
				case n == 5:
					d, wait := one(), time.Duration(random.IntN(60))*time.Second
					require.NoError(t, src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: d, For: wait}}))
					due[d.Position] = now().Add(wait)
					delete(last, d.Position)
				case n == 6:
					d := one()
					require.NoError(t, src.(backend.Extender).Extend(t.Context(), []*backend.Delivery{&d}))
					due[d.Position] = now().Add(lease)
				default:
					d := one()
					require.NoError(t, src.Ack(t.Context(), []*backend.Delivery{&d}))
					delete(due, d.Position)
					delete(last, d.Position)
				}
			}
		})
	}
}
