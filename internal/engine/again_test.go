package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// What a broker hands out again, having forgotten that it had, takes the place of what
// is held and has not run: it runs once, and in order. The broker may have forgotten
// the attempt too.
func TestWhatComesAgainRunsOnce(t *testing.T) {
	for _, amnesia := range []bool{false, true} {
		t.Run(fmt.Sprintf("amnesia=%v", amnesia), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				var ran record
				r.sub(Config{Lease: 10 * time.Second, Order: ByKey}, func(ctx context.Context, h *Hold) error {
					if ran.add(h.Delivery().ID) == 2 {
						<-ctx.Done() // of the first after the warm-up, whose lease is lost
						return ctx.Err()
					}
					return nil
				})
				r.publishKeyed("k", "0") // so that it is known how long a run takes, and the next are read ahead
				r.pass(time.Second)
				r.wire.amnesia.Store(amnesia)
				r.wire.deaf.Store(true)
				r.publishKeyed("k", "1", "2", "3", "4")
				r.pass(10*time.Second + 600*time.Millisecond)
				r.wire.deaf.Store(false)
				require.Equal(r, []string{"0", "1", "1", "2", "3", "4"}, ran.all())
				require.Len(r, heard[observer.LeaseLost](r), 4)
				r.pass(time.Minute)
				require.Len(r, ran.all(), 6)
			})
		})
	}
}

// So does what came here as a redelivery before.
func TestWhatComesAgainOnceMoreRunsOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.publishKeyed("k", "1", "2")
		other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Second})
		require.NoError(r, err)
		_, err = other.Receive(r.Context(), 2)
		require.NoError(r, err)
		r.pass(2 * time.Second)
		var ran record
		r.sub(Config{Lease: 10 * time.Second, Order: ByKey, Concurrency: 4}, func(_ context.Context, h *Hold) error {
			if ran.add(h.Delivery().ID) == 1 {
				r.wire.amnesia.Store(true)
				r.wire.deaf.Store(true)
				time.Sleep(10*time.Second + 300*time.Millisecond)
			}
			return nil
		})
		r.pass(time.Minute)
		require.Equal(r, []string{"1", "1", "2"}, ran.all())
	})
}
