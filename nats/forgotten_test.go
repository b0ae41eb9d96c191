package nats_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A crashed server does not answer the acknowledgement of a delivery that it has
// forgotten. Ack finds that out soon, without waiting for its context's end.
func TestAckOfWhatIsForgotten(t *testing.T) {
	t.Parallel()
	for _, confirm := range []bool{true, false} {
		t.Run(fmt.Sprintf("confirm=%v", confirm), func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t)
			b, err := as(t, server, "")
			require.NoError(t, err)
			s, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: 5 * time.Second, ConfirmAcks: confirm})
			require.NoError(t, err)
			var ms []*backend.Message
			for i := range 20000 {
				ms = append(ms, &backend.Message{Topic: topic, ID: fmt.Sprint(i)})
			}
			for some := range slices.Chunk(ms, 1000) {
				require.NoError(t, b.Publish(t.Context(), some))
			}
			// Whether the server has written its last deliveries to disk is chance.
			for range 8 {
				if forgets(t, server, b, s) {
					return
				}
			}
			t.Fatal("the server has forgotten nothing in eight crashes")
		})
	}
}

// forgets crashes the server after a delivery. It reports whether Ack says that the server
// has forgotten the delivery.
func forgets(t *testing.T, server *natstest.Server, b *nats.Backend, s backend.Source) bool {
	t.Helper()
	var last []backend.Delivery
	for range 20 {
		ds, err := s.Receive(t.Context(), 10, 0)
		require.NoError(t, err)
		require.NotEmpty(t, ds)
		if last != nil {
			require.NoError(t, s.Ack(t.Context(), backend.Lend(last)))
		}
		last = slices.Clone(ds) // Receive reuses their memory
	}
	server.Kill()
	server.Run()
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 20*time.Second, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Ack(ctx, backend.Lend(last))
	require.NoError(t, ctx.Err())
	if err == nil {
		return false
	}
	for i := range last {
		if err := backend.ErrorAt(err, i); err != nil {
			require.ErrorIs(t, err, backend.ErrLeaseLost)
		}
	}
	return true
}
