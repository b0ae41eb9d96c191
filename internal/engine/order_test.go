package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Events that cannot be given back are redelivered when their leases expire.
func TestFailingDelayLeavesEventsToTheirLeases(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("delay", backend.ErrUnavailable)
		ran := map[string]int{}
		s := r.sub(Config{Order: ByKey}, func(_ context.Context, h *Hold) error {
			if ran[h.Delivery().ID]++; h.Delivery().ID == "1" && ran["1"] == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		r.publishKeyed("k", "1", "2")
		r.pass(2 * time.Minute)
		require.Equal(r, 2, ran["1"])
		require.EqualValues(r, 2, s.Counts().Acknowledged)
		require.NotEmpty(r, heard[observer.LeaseLost](r))
	})
}

// An event that was given back to a group that is then deleted delays no other event.
func TestGoneForgetsWhatIsAway(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		r.sub(Config{Policy: policy(3, func(*Hold, error) time.Duration { return time.Hour })}, func(_ context.Context, h *Hold) error {
			ran = append(ran, h.Delivery().ID)
			if h.Delivery().ID == "old" {
				return errors.New("not yet")
			}
			return nil
		})
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "old", Key: "k"}}))
		r.pass(time.Second)
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(r, admin.DeleteTopic(r.Context(), "t"))
		r.publish("free") // the event takes the position of the old one
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "new", Key: "k"}}))
		r.pass(time.Minute)
		require.Equal(r, []string{"old", "free", "new"}, ran)
	})
}

// The next event of a key does not wait until the acknowledgement of the one before is
// confirmed.
func TestNextOfAKeyRunsBeforeTheAck(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.delay("ack", 5*time.Second)
		var ran []time.Duration
		r.sub(Config{}, func(context.Context, *Hold) error { ran = append(ran, r.at()); return nil })
		msgs := []*backend.Message{{Topic: "t", ID: "1", Key: "k"}, {Topic: "t", ID: "2", Key: "k"}}
		require.NoError(r, r.Publish(r.Context(), msgs))
		r.pass(time.Minute)
		require.Len(r, ran, 2)
		require.Equal(r, ran[0], ran[1])
	})
}
