package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// Order survives a Delay that does not get through.
func TestOrderSurvivesAFailingDelay(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("delay", errDown)
		var ran []string
		r.sub(Config{}, func(_ context.Context, h *Hold) error {
			ran = append(ran, h.Delivery().ID)
			if len(ran) == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		msgs := []*backend.Message{{Topic: "t", ID: "1", Key: "k"}, {Topic: "t", ID: "2", Key: "k"}}
		require.NoError(r, r.Publish(r.Context(), msgs))
		for range 20 {
			r.pass(time.Second)
			r.publish("other")
		}
		r.pass(time.Minute)
		var keyed []string
		for _, id := range ran {
			if id != "other" {
				keyed = append(keyed, id)
			}
		}
		require.Equal(r, []string{"1", "1", "2"}, keyed)
	})
}

// What was away in a group that is gone holds nobody up.
func TestGoneForgetsWhatIsAway(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran []string
		r.sub(Config{Policy: Policy{MaxAttempts: 3, Backoff: func(int) time.Duration { return time.Hour }}}, func(_ context.Context, h *Hold) error {
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
		r.publish("free") // it takes the position of the old one
		require.NoError(r, r.Publish(r.Context(), []*backend.Message{{Topic: "t", ID: "new", Key: "k"}}))
		r.pass(time.Minute)
		require.Equal(r, []string{"old", "free", "new"}, ran)
	})
}

// The next of a key does not wait until the one before is confirmed to be
// acknowledged.
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

// An Extend that takes effect after its events were found to be lost lets them come
// again that much later: what is behind waits for them.
func TestOrderSurvivesALateExtend(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran record
		r.sub(Config{Lease: 6 * time.Second, Order: ByKey}, func(ctx context.Context, h *Hold) error {
			if ran.add(h.Delivery().ID) == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		r.wire.fail("extend", errDown)
		r.pass(1500 * time.Millisecond)
		r.publishKeyed("k", "1", "2") // until 7.5 with the backend, to 6.5 for certain
		r.pass(4400 * time.Millisecond)
		r.wire.fail("extend", nil)
		r.wire.delay("extend", 700*time.Millisecond) // from 6 to 6.7
		r.pass(time.Second)
		r.publishKeyed("k", "3")
		r.pass(time.Minute)
		require.Equal(r, []string{"1", "1", "2", "3"}, ran.all())
	})
}

// The answer to an Extend says nothing of what came again meanwhile, and was sent away
// for longer.
func TestLateAnswerOfExtend(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var ran record
		r.sub(Config{Lease: 6 * time.Second, Order: ByKey, Concurrency: 2}, func(ctx context.Context, h *Hold) error {
			switch ran.add(h.Delivery().ID) {
			case 1:
				<-ctx.Done()
				return ctx.Err()
			case 2:
				return RetryAfter(errors.New("no"), time.Minute)
			}
			return nil
		})
		r.wire.fail("extend", errDown)
		r.publishKeyed("k", "1")
		r.pass(5400 * time.Millisecond)
		r.wire.fail("extend", nil)
		r.wire.deaf.Store(true)
		r.wire.delay("extend", 700*time.Millisecond) // from 5.5 to 6.2
		r.pass(time.Second)
		r.wire.deaf.Store(false)
		r.publishKeyed("k", "2")
		r.pass(2 * time.Minute)
		require.Equal(r, []string{"1", "1", "1", "2"}, ran.all())
	})
}
