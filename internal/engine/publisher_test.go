package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// A first try of unknown outcome is not forgotten over later ones.
func TestUnknownOutcomeIsNotForgotten(t *testing.T) {
	inBubble(t, Options{PublishTimeout: 10 * time.Second}, func(r *rig) {
		r.wire.fail("publish", backend.ErrUnknownOutcome)
		time.AfterFunc(time.Millisecond, func() { r.wire.fail("publish", backend.ErrUnavailable) })
		err := r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "x", Once: true}})
		require.False(r, backend.NotStored(backend.ErrorAt(err, 0)), "%v", err)
		require.ErrorIs(r, err, backend.ErrUnknownOutcome)

		r.wire.fail("publish", backend.ErrUnknownOutcome)
		time.AfterFunc(time.Millisecond, func() { r.wire.fail("publish", backend.ErrDenied) })
		err = r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "x", Once: true}})
		require.ErrorIs(r, err, backend.ErrUnknownOutcome)
		r.wire.fail("publish", nil)
	})
}
