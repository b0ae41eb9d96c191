package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Where all places are taken by what waits behind an event that another member has
// taken, that is let go in the end, whatever number the backend gives to the attempts
// of what yields its place meanwhile.
func TestFullHouseBehindWhatDoesNotComeBack(t *testing.T) {
	for _, refund := range []bool{true, false} {
		t.Run(fmt.Sprintf("refund=%v", refund), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				const lease = 20 * time.Second
				r.wire.noRefund = !refund
				r.limits = r.wire.Limits()
				var ran record
				s := r.sub(Config{MaxInFlight: 2, Order: ByKey, Lease: lease}, func(_ context.Context, h *Hold) error {
					ran.add(h.Delivery().ID)
					if h.Delivery().ID == "1" {
						return errors.New("no")
					}
					return nil
				})
				r.publishKeyed("k", "1")
				r.pass(100 * time.Millisecond)
				require.Equal(r, []string{"1"}, ran.all())
				r.publishKeyed("k", "2", "3", "4", "5", "6")
				r.pass(100 * time.Millisecond)

				s.Pause()
				other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Hour})
				require.NoError(r, err)
				r.pass(time.Second) // 1 is due
				ds, err := other.Receive(r.Context(), 1)
				require.NoError(r, err)
				require.Equal(r, "1", ds[0].ID)
				s.Resume()

				before := len(r.wire.of("delay"))
				r.pass(lease)
				require.Equal(r, []string{"1"}, ran.all(), "it may come back when its lease has passed")
				r.pass(5 * time.Second)
				require.Equal(r, []string{"1", "2", "3", "4", "5", "6"}, ran.all())
				require.Less(r, len(r.wire.of("delay"))-before, 500, "what yields its place goes in circles") // 50 a second at first
			})
		})
	}
}

// Without Delayer what waits behind an event that another member has is left to its
// lease, to make room. That is no attempt.
func TestFullHouseWithoutDelayer(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		const lease = 30 * time.Second
		r.wire.noDelay = true
		var ran record
		s := r.sub(Config{Lease: lease, MaxInFlight: 2, Order: ByKey}, func(ctx context.Context, h *Hold) error {
			ran.add(h.Delivery().ID + "/" + strconv.Itoa(h.Attempt()))
			if h.Delivery().ID == "1" {
				<-ctx.Done() // its lease is lost
				return ctx.Err()
			}
			return nil
		})
		r.publishKeyed("k", "0")
		r.pass(time.Second)
		r.publishKeyed("k", "1")
		r.wire.fail("extend", errDown)
		r.pass(lease - 100*time.Millisecond)
		r.publishKeyed("k", "2")
		r.pass(10 * time.Millisecond)
		s.Pause()
		other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Hour})
		require.NoError(r, err)
		ds, err := other.Receive(r.Context(), 1)
		require.NoError(r, err)
		require.Equal(r, "1", ds[0].ID)
		r.wire.fail("extend", nil)
		r.publishKeyed("k", "3", "4", "5")
		s.Resume()
		r.pass(10 * time.Minute)
		require.Equal(r, []string{"0/1", "1/1", "2/1", "3/1", "4/1", "5/1"}, ran.all())
	})
}

// One event that comes again and again fills each Receive of a group that asks for
// one: what waits behind another that does not come back is let go nevertheless.
func TestWhatComesAgainAndAgainHoldsUpNoKey(t *testing.T) {
	for _, refund := range []bool{true, false} {
		t.Run(fmt.Sprintf("refund=%v", refund), func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.wire.noRefund = !refund
				r.limits = r.wire.Limits()
				var ran record
				s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Hold) error {
					time.Sleep(300 * time.Millisecond) // so that one is asked for at a time
					id := h.Delivery().ID
					if id == "poller" {
						return Snooze(time.Second)
					}
					ran.add(id)
					if id == "1" {
						return errors.New("no")
					}
					return nil
				})
				r.publishKeyed("p", "poller")
				r.pass(350 * time.Millisecond)
				r.publishKeyed("k", "1", "2")
				r.pass(1200 * time.Millisecond)
				require.Equal(r, []string{"1"}, ran.all())
				s.Pause()
				other, err := r.wire.Backend.Attach(r.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Hour})
				require.NoError(r, err)
				for taken := false; !taken; {
					ds, err := other.Receive(r.Context(), 1)
					require.NoError(r, err)
					taken = ds[0].ID == "1"
					if !taken {
						delayer, _ := backend.As[backend.Delayer](other)
						require.NoError(r, delayer.Delay(r.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Second, Refund: refund}}))
					}
				}
				s.Resume()
				r.pass(10 * time.Second)
				require.Equal(r, []string{"1", "2"}, ran.all())
			})
		})
	}
}
