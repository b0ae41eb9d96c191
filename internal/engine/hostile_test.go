package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A handler of manual mode that returns nil has settled nothing, also if the lease was
// lost meanwhile: the event comes again.
func TestManualRunThatLostItsLeaseIsNotAcknowledged(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("extend", errDown)
		runs := 0
		r.sub(Config{Mode: Manual}, func(ctx context.Context, _ *Hold) error {
			runs++
			<-ctx.Done()
			return nil // the program means to settle it later
		})
		r.publish("1")
		r.pass(100 * time.Second)
		require.Greater(r, runs, 2)
		require.Empty(r, r.wire.of("ack"))
	})
}
