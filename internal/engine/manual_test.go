package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// In manual mode the context of a run ends with settlement, even if the caller of Ack has
// left.
func TestManualContextEndsWithSettlement(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		taken := make(chan *Hold, 1)
		r.sub(Config{Mode: Manual}, func(_ context.Context, h *Hold) error { taken <- h; return nil })
		r.publish("1")
		h := <-taken
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		r.wire.delay("ack", time.Second)
		require.ErrorIs(r, h.Ack(ctx), backend.ErrUnknownOutcome)
		require.NoError(r, h.Context().Err())
		r.pass(2 * time.Second)
		require.Error(r, h.Context().Err())
	})
}
