package nats_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A Delay whose outcome is unknown can be repeated by a member that is alone. The message
// comes once, and does not wait for the end of its lease.
func TestDelayAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration // of the Delay
		wait  time.Duration // before the repetition
		sent  bool          // the server has received the first Delay
	}{
		"done, repeated before it is due": {2 * time.Second, 0, true},
		"done, repeated when it is due":   {50 * time.Millisecond, 300 * time.Millisecond, true},
		"lost, repeated before it is due": {2 * time.Second, 0, false},
		"lost, repeated when it is due":   {50 * time.Millisecond, 300 * time.Millisecond, false},
		"done, given back":                {0, 0, true},
		"lost, given back":                {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, server := new(rig), natstest.Start(t)
			b := r.open(t, nats.Options{}, alone(server))
			src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour})
			require.NoError(t, err)
			require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
			ds, err := src.Receive(t.Context(), 10, 0)
			require.NoError(t, err)
			require.Len(t, ds, 1)
			ds = slices.Clone(ds) // Receive reuses their memory

			delay := func(pause time.Duration) error {
				return src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: pause}})
			}
			p := r.line(b).current()
			began := time.Now()
			if c.sent {
				p.DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte("-NAK")) })
			} else {
				thaw := p.Freeze()
				time.AfterFunc(100*time.Millisecond, func() { p.Cut(); thaw() })
			}
			require.ErrorIs(t, backend.ErrorAt(delay(c.pause), 0), backend.ErrUnknownOutcome)
			time.Sleep(c.wait)
			require.Eventually(t, func() bool {
				err = delay(max(c.pause-time.Since(began), 0))
				return !errors.Is(err, backend.ErrUnavailable)
			}, 20*time.Second, 10*time.Millisecond)
			require.NoError(t, err)

			var again []backend.Delivery
			for until := time.Now().Add(20 * time.Second); len(again) == 0 && time.Now().Before(until); {
				again, err = src.Receive(t.Context(), 10, 0)
				require.NoError(t, err)
			}
			require.Len(t, again, 1)
			require.GreaterOrEqual(t, time.Since(began), c.pause)
			ds[0] = again[0]
			for range 4 {
				more, err := src.Receive(t.Context(), 10, 0)
				require.NoError(t, err)
				require.Empty(t, more, "it comes once")
			}
			require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
		})
	}
}

// If there is another member, a Delay of unknown outcome that may be due by now is not
// repeated, because the other member may have the message.
func TestDelayAfterAnUnknownOutcomeOfOneOfTwo(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b, other := r.open(t, nats.Options{}, alone(server)), r.open(t, nats.Options{}, alone(server))
	c := backend.Config{Topic: "orders", Group: "g", Lease: time.Hour}
	src, err := b.Attach(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
	ds, err := src.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	ds = slices.Clone(ds) // Receive reuses their memory
	peer, err := other.Attach(t.Context(), c)
	require.NoError(t, err)

	back := []backend.Delayed{{Delivery: ds[0], For: 50 * time.Millisecond}}
	r.line(b).current().DropReply(func(chunk []byte) bool { return bytes.Contains(chunk, []byte("-NAK")) })
	require.ErrorIs(t, backend.ErrorAt(src.(backend.Delayer).Delay(t.Context(), back), 0), backend.ErrUnknownOutcome)
	var taken []backend.Delivery
	for until := time.Now().Add(10 * time.Second); len(taken) == 0 && time.Now().Before(until); {
		taken, err = peer.Receive(t.Context(), 10, 0)
		require.NoError(t, err)
	}
	require.Len(t, taken, 1)
	require.Eventually(t, func() bool {
		err = src.(backend.Delayer).Delay(t.Context(), back)
		return !errors.Is(err, backend.ErrUnavailable)
	}, 20*time.Second, 10*time.Millisecond)
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrLeaseLost)
	for reads := 0; reads < 3; {
		more, err := src.Receive(t.Context(), 10, 0)
		require.Empty(t, more, "the other member has it")
		if errors.Is(err, backend.ErrUnavailable) { // the connection is being made again
			time.Sleep(10 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		reads++
	}
}

// An Ack whose outcome is unknown ends no lease: the message may still be pending, so the
// member goes on to extend the lease, and repeats the Ack.
func TestExtendAfterAnUnknownAck(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(server))
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "1"}}))
	ds, err := src.Receive(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	ds = slices.Clone(ds) // Receive reuses their memory

	p := r.line(b).current()
	thaw := p.Freeze()
	time.AfterFunc(100*time.Millisecond, func() { p.Cut(); thaw() })
	require.ErrorIs(t, backend.ErrorAt(src.Ack(t.Context(), backend.Lend(ds)), 0), backend.ErrUnknownOutcome)

	again := func(call func(context.Context, []*backend.Delivery) error) {
		require.Eventually(t, func() bool {
			err = call(t.Context(), backend.Lend(ds))
			return !errors.Is(err, backend.ErrUnavailable)
		}, 20*time.Second, 10*time.Millisecond)
		require.NoError(t, err)
	}
	again(src.(backend.Extender).Extend)
	err = src.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[0], For: time.Second}})
	require.ErrorIs(t, backend.ErrorAt(err, 0), backend.ErrLeaseLost, "it may be acknowledged")
	again(src.Ack)
}
