package nats_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A server that deletes a consumer may drop a pull that arrives just then, without an answer.
// After a reset, Receive delivers the group's messages all the same.
func TestResetMeetsAPull(t *testing.T) {
	t.Parallel()
	r := new(rig)
	b := r.open(t, nats.Options{}, alone(natstest.Start(t)))
	const lease = 400 * time.Millisecond
	src, err := b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "g", Lease: lease, MaxInFlight: 10})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "first"}}))
	reset := make(chan error, 1)
	reset <- nil
	for round := range 48 {
		var ds []backend.Delivery
		for len(ds) == 0 {
			ds, err = src.Receive(t.Context(), 1, 0)
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

// While ResetGroup creates a group's consumer again, another process that maintains the topic
// purges nothing that the group has not settled.
func TestResetMeetsAPurge(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]nats.Options{"own stream": {}, "shared stream": {Stream: "all"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, server := new(rig), natstest.Start(t)
			ours, others := r.open(t, o, alone(server)), r.open(t, o, alone(server))
			attach := func(group string) backend.Source {
				src, err := ours.Attach(t.Context(), backend.Config{Topic: "orders", Group: group, Lease: time.Minute, MaxInFlight: 10})
				require.NoError(t, err)
				return src
			}
			attach("slow")
			fast := attach("fast")
			require.NoError(t, ours.Publish(t.Context(), []*backend.Message{{Topic: "orders", ID: "first"}}))
			ds, err := fast.Receive(t.Context(), 1, 0)
			require.NoError(t, err)
			require.NoError(t, fast.Ack(t.Context(), backend.Lend(ds)))

			maintained := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(maintained)
				for {
					select {
					case <-done:
						return
					default:
					}
					_, _ = others.(backend.Maintainer).Maintain(t.Context(), "orders", "fast") // refused when groups change meanwhile
				}
			}()
			for range 100 {
				require.NoError(t, ours.(backend.Admin).ResetGroup(t.Context(), "orders", "slow", backend.StartEarliest))
			}
			close(done)
			<-maintained
			groups, err := ours.(backend.Admin).Groups(t.Context(), "orders")
			require.NoError(t, err)
			require.Equal(t, []string{"fast", "slow"}, groups)
			ms, err := ours.(backend.Reader).Read(t.Context(), "orders", "", 1)
			require.NoError(t, err)
			require.Len(t, ms, 1, "the group has not settled it")
		})
	}
}
