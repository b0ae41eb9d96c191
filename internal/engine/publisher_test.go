package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/inmemory"
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

// What a caller publishes after it has left a call is not stored before what it left:
// another call to the backend could overtake the one under way.
func TestLeavesInOrder(t *testing.T) {
	inBubble(t, Options{PublishTimeout: time.Minute}, func(r *rig) {
		r.wire.delay("publish", 10*time.Second)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		err := r.Publish(ctx, []*backend.Message{{Topic: "t", ID: "left"}})
		require.ErrorIs(r, err, backend.ErrUnknownOutcome)
		r.wire.delay("publish", 0)
		r.publish("next")
		require.Equal(r, 10*time.Second, r.at())
		calls := r.wire.of("publish")
		require.Len(r, calls, 2)
	})
}

// What a caller has left before its next try starts nothing any more, as the bus may
// have ended by then: the bubble would tell of a goroutine.
func TestNothingIsTriedAfterTheEnd(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.fail("publish", backend.ErrUnavailable)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(r, r.Publish(ctx, []*backend.Message{{Topic: "t", ID: "left"}}), context.DeadlineExceeded)
		_, err := r.Shutdown(r.Context())
		require.NoError(r, err)
		r.pass(200 * time.Millisecond)
	})
}

// Nor does what its caller is told to leave, though that may take a while to do so.
func TestNothingIsTriedOnceItsCallerIsToLeave(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		c := r.publisher.newCall(one("x"), time.Time{})
		require.True(r, r.publisher.repeat(c))
		c.giveUp(backend.ErrClosed)
		r.pass(200 * time.Millisecond)
		require.Empty(r, r.wire.of("publish"))
	})
}

// Who is told that its event is stored is told where, even if it was about to leave.
func TestWhatIsStoredHasAPosition(t *testing.T) {
	b := &departing{Backend: inmemory.New(inmemory.Options{})}
	e := New(b, Options{})
	for range 150 {
		ctx, cancel := context.WithCancel(t.Context())
		b.stored = cancel
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				msgs := one("x")
				if e.Publish(ctx, msgs) == nil {
					assert.NotEmpty(t, msgs[0].Position)
				}
			})
		}
		callers.Wait()
		e.publisher.queue.Wait()
	}
	_, err := e.Shutdown(t.Context())
	require.NoError(t, err)
}

// departing is a backend that calls a function when it has stored something.
type departing struct {
	backend.Backend
	stored func()
}

func (d *departing) Publish(ctx context.Context, msgs []*backend.Message) error {
	time.Sleep(100 * time.Microsecond) // meanwhile others come
	defer d.stored()
	return d.Backend.Publish(ctx, msgs)
}

// What is not stored is tried again unless a later one of its key is, or may be.
func TestRepeatsKeepOrder(t *testing.T) {
	const no, perhaps = "no", "perhaps"
	outcomes := map[string]error{no: backend.ErrUnavailable, perhaps: backend.ErrUnknownOutcome, "yes": nil}
	for _, c := range []struct {
		name, first, second string
		keys                [2]string
		once, again         bool
	}{
		{"both of them", no, no, [2]string{"k", "k"}, false, true},
		{"not behind what is stored", no, "yes", [2]string{"k", "k"}, false, false},
		{"not behind what may be", no, perhaps, [2]string{"k", "k"}, false, false},
		{"nor if that is tried again", no, perhaps, [2]string{"k", "k"}, true, false},
		{"who may be stored may have been first", perhaps, perhaps, [2]string{"k", "k"}, true, true},
		{"of another key", no, perhaps, [2]string{"k", "l"}, false, true},
		{"without a key", no, perhaps, [2]string{"", ""}, false, true},
		{"behind it", perhaps, no, [2]string{"k", "k"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Options{PublishTimeout: time.Second}, func(r *rig) {
				r.wire.fail("publish", backend.BatchError{outcomes[c.first], outcomes[c.second]})
				var msgs []*backend.Message
				for i, key := range c.keys {
					msgs = append(msgs, &backend.Message{Topic: "t", ID: fmt.Sprint(i), Key: key, Once: c.once})
				}
				require.Error(r, r.Publish(r.Context(), msgs))
				require.Equal(r, c.again, len(r.wire.of("publish")) > 1)
				r.wire.fail("publish", nil)
			})
		})
	}
}

// What was perhaps stored by a try before may not be: it is not tried again behind a
// later one of its key that this try may have stored alone.
func TestRepeatsKeepOrderOverSeveralTries(t *testing.T) {
	for _, c := range []struct {
		second error // of the later one, while the first is certainly not stored
		tries  int
	}{{backend.ErrUnknownOutcome, 2}, {backend.ErrUnavailable, 3}} {
		inBubble(t, Options{PublishTimeout: 10 * time.Second}, func(r *rig) {
			r.wire.fail("publish", backend.ErrUnknownOutcome)
			time.AfterFunc(time.Millisecond, func() { r.wire.fail("publish", backend.BatchError{backend.ErrUnavailable, c.second}) })
			time.AfterFunc(150*time.Millisecond, func() { r.wire.fail("publish", nil) }) // between the second and the third
			msgs := []*backend.Message{{Topic: "t", ID: "a", Key: "k", Once: true}, {Topic: "t", ID: "b", Key: "k", Once: true}}
			err := r.Publish(r.Context(), msgs)
			require.Equal(r, c.tries > 2, err == nil, "%v", err)
			require.Len(r, r.wire.of("publish"), c.tries)
		})
	}
}

// Of a call that takes several calls to the backend nothing is stored before what goes
// before it and is tried again.
func TestSeveralPortionsKeepOrder(t *testing.T) {
	for _, perhaps := range []error{backend.ErrUnknownOutcome, errDown} {
		inBubble(t, Options{PublishTimeout: 10 * time.Second}, func(r *rig) {
			r.wire.fail("publish", perhaps)
			time.AfterFunc(time.Millisecond, func() { r.wire.fail("publish", nil) })
			msgs := make([]*backend.Message, messagesPerWrite+1)
			for i := range msgs {
				msgs[i] = &backend.Message{Topic: "t", ID: fmt.Sprint(i), Key: "k", Once: true}
			}
			require.NoError(r, r.Publish(r.Context(), msgs))
			var items []int
			for _, c := range r.wire.of("publish") {
				items = append(items, c.items)
			}
			require.Equal(r, []int{messagesPerWrite, messagesPerWrite, 1}, items, "first: %v", perhaps)
		})
	}
}
