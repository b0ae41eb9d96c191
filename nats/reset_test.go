package nats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A server that deletes a consumer may drop a pull that arrives just then, without a word.
// Receive delivers the messages of the group that begins anew all the same.
func TestResetMeetsAPull(t *testing.T) {
	t.Parallel()
	r := new(rig)
	b := r.open(t, nats.Options{}, alone(natstest.Start(t)))
	const lease = 2 * time.Second
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: lease, MaxInFlight: 10})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "first"}}))
	reset := make(chan error, 1)
	reset <- nil
	for round := range 48 {
		var ds []backend.Delivery
		for len(ds) == 0 {
			ds, err = src.Receive(t.Context(), 1)
			require.NoError(t, err, "round %d", round)
		}
		require.NoError(t, <-reset)
		require.Equal(t, "first", ds[0].ID)
		require.NoError(t, src.Ack(t.Context(), backend.Lend(ds)))
		time.AfterFunc(lease/8+time.Duration(round%16-14)*200*time.Microsecond, func() { // about when the first pull ends and the next begins
			reset <- b.(backend.Admin).ResetGroup(t.Context(), "orders", "g", backend.StartEarliest)
		})
	}
	require.NoError(t, <-reset)
}
