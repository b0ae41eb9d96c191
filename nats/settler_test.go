package nats_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// hold returns a member that holds n messages for long, and the messages.
func hold(t *testing.T, b backend.Backend, n int) (backend.Source, []backend.Delivery) {
	t.Helper()
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: time.Hour, MaxInFlight: n})
	require.NoError(t, err)
	ms := make([]*backend.Message, n)
	for i := range ms {
		ms[i] = &backend.Message{Topic: "orders"}
	}
	require.NoError(t, b.Publish(t.Context(), ms))
	return src, receiveEach(t, src, n)
}

func receiveEach(t *testing.T, src backend.Source, n int) (ds []backend.Delivery) {
	t.Helper()
	for len(ds) < n {
		some, err := src.Receive(t.Context(), n-len(ds), 0)
		require.NoError(t, err)
		ds = append(ds, slices.Clone(some)...)
	}
	return ds
}

// extendable returns how many of the deliveries a member can extend.
func extendable(t *testing.T, src backend.Source, ds []backend.Delivery) (n int) {
	t.Helper()
	err := src.(backend.Extender).Extend(t.Context(), backend.Lend(slices.Clone(ds)))
	for i := range ds {
		if e := backend.ErrorAt(err, i); e == nil {
			n++
		} else {
			require.ErrorIs(t, e, backend.ErrLeaseLost)
		}
	}
	return n
}

// Several operators settle many messages at a time, from processes of their own. The holder learns of each,
// and a pause by another operator stays.
func TestManySettle(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(server))
	src, ds := hold(t, b, 60)
	var operators sync.WaitGroup
	for i := range 5 {
		other := r.open(t, nats.Options{}, alone(server)).(*nats.Backend)
		operators.Go(func() {
			for k := i; k < 50; k += 5 {
				_, err := other.Settle(context.WithoutCancel(t.Context()), "orders", "g", ds[k].Position)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	operators.Wait()
	require.Eventually(t, func() bool {
		_, err := b.(*nats.Backend).Maintain(t.Context(), "orders", "g")
		require.NoError(t, err)
		return extendable(t, src, ds) == 10
	}, 10*time.Second, 100*time.Millisecond, "the ones that nobody has settled")
	s, err := b.(*nats.Backend).Stats(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.EqualValues(t, 10, s.Unacked)
}

// An operator who gives up while the server acknowledges does not hear that nothing was changed.
func TestSettleThatIsCancelled(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b, other := r.open(t, nats.Options{}, alone(server)), r.open(t, nats.Options{}, alone(server))
	_, ds := hold(t, b, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r.Link(other).current().DropReply(func(chunk []byte) bool {
		if bytes.Contains(chunk, []byte("+ACK")) {
			cancel()
			return true
		}
		return false
	})
	_, err := other.(*nats.Backend).Settle(ctx, "orders", "g", ds[0].Position)
	require.ErrorIs(t, err, backend.ErrUnknownOutcome)
	require.ErrorIs(t, err, context.Canceled)
}

// After a reset the group has the message again, and its member is a holder like any other.
func TestSettleThenReset(t *testing.T) {
	t.Parallel()
	r, server := new(rig), natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(server))
	src, ds := hold(t, b, 3)
	own := b.(*nats.Backend)
	for i := range 2 {
		_, err := own.Settle(t.Context(), "orders", "g", ds[i].Position)
		require.NoError(t, err)
	}
	require.Equal(t, 1, extendable(t, src, ds))
	require.NoError(t, own.ResetGroup(t.Context(), "orders", "g", backend.StartEarliest))
	again := receiveEach(t, src, 3)
	require.Equal(t, 3, extendable(t, src, again))
	_, err := own.Maintain(t.Context(), "orders", "g")
	require.NoError(t, err)
	require.Equal(t, 3, extendable(t, src, again), "with what the member has learned")
	_, err = own.Settle(t.Context(), "orders", "g", again[0].Position)
	require.NoError(t, err)
	require.Equal(t, 2, extendable(t, src, again))
}
