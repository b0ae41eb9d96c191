package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

var errDown = fmt.Errorf("%w: the door is shut", backend.ErrUnavailable)

// A message that was certainly not stored is tried again within the time of the call, whether the
// caller or the queue wrote it.
func TestRepeats(t *testing.T) {
	for _, slots := range []int{-1, 1} {
		inBubble(t, slots, Options{Timeout: time.Minute}, func(r *rig) {
			r.broker.fail(errDown)
			time.AfterFunc(3*time.Second, func() { r.broker.fail(nil) })
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					msgs := one("x")
					require.NoError(r, r.Publish(r.Context(), msgs))
					require.NotEmpty(r, msgs[0].Position)
				})
			}
			wg.Wait()
			require.Greater(r, len(r.broker.calls()), 2)

			r.broker.fail(errDown)
			start := time.Now()
			err := backend.ErrorAt(r.Publish(r.Context(), one("y")), 0)
			require.ErrorIs(r, err, errDown)
			require.InDelta(r, time.Minute, time.Since(start), float64(20*time.Second))

			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			start = time.Now()
			err = backend.ErrorAt(r.Publish(ctx, one("z")), 0)
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.ErrorIs(r, err, errDown)
			require.True(r, backend.NotStored(err))
			require.Equal(r, time.Second, time.Since(start))
		})
	}
}

// A write by the caller itself ends at the timeout. Without a timeout, its duration is not limited.
func TestOwnWriteEndsInTime(t *testing.T) {
	for _, timeout := range []time.Duration{0, 8 * time.Second} {
		inBubble(t, 1, Options{Timeout: timeout}, func(r *rig) {
			r.broker.take(20 * time.Second)
			start := time.Now()
			err := backend.ErrorAt(r.Publish(context.WithoutCancel(r.Context()), one("a")), 0)
			if timeout == 0 {
				require.NoError(r, err)
				return
			}
			require.ErrorIs(r, err, context.DeadlineExceeded)
			require.ErrorContains(r, err, "after 8s")
			require.Equal(r, timeout, time.Since(start))
		})
	}
}

// After Close, a call that its caller has left isn't tried again. Otherwise the bubble would report
// its goroutine.
func TestNothingIsTriedAfterTheEnd(t *testing.T) {
	inBubble(t, 1, Options{}, func(r *rig) {
		r.broker.fail(errDown)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(r, r.Publish(ctx, one("left")), context.DeadlineExceeded)
		require.NoError(r, r.Close(r.Context()))
		before := len(r.broker.calls())
		time.Sleep(time.Minute)
		require.Len(r, r.broker.calls(), before)
	})
}

// If the outcome of the first try is unknown, the error still says so after later tries.
func TestUnknownOutcomeIsNotForgotten(t *testing.T) {
	for _, later := range []error{backend.ErrUnavailable, backend.ErrDenied} {
		inBubble(t, 0, Options{Timeout: 10 * time.Second}, func(r *rig) {
			r.broker.fail(backend.ErrUnknownOutcome)
			time.AfterFunc(time.Millisecond, func() { r.broker.fail(later) })
			err := backend.ErrorAt(r.Publish(r.Context(), many(1)), 0)
			require.ErrorIs(r, err, backend.ErrUnknownOutcome)
			require.False(r, backend.NotStored(err), "%v", err)
		})
	}
}

// A message that may be stored is tried again only while the broker remembers its ID.
func TestRepeatsWithinTheOnceWindow(t *testing.T) {
	for _, timeout := range []time.Duration{0, 3 * time.Hour} {
		inBubble(t, 1, Options{Timeout: timeout}, func(r *rig) {
			start := time.Now()
			r.broker.fail(backend.ErrUnknownOutcome)
			time.AfterFunc(time.Hour, func() { r.broker.fail(nil) }) // the OnceWindow of the broker
			require.ErrorIs(r, r.Publish(r.Context(), many(1)), backend.ErrUnknownOutcome)
			require.LessOrEqual(r, time.Since(start), time.Hour)
		})
	}
}

// A panic of the driver becomes an error with its stack and an unknown outcome, on the caller's
// goroutine and on the queue's. The call is not repeated.
func TestPanicOfTheDriver(t *testing.T) {
	inBubble(t, 1, Options{Timeout: time.Minute}, func(r *rig) {
		r.broker.set(func(b *broker) { b.panics, b.takes = "broken", time.Second })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				err := backend.ErrorAt(r.Publish(r.Context(), many(1)), 0)
				require.ErrorIs(r, err, backend.ErrUnknownOutcome)
				p, ok := errors.AsType[*observer.PanicError](err)
				require.True(r, ok)
				require.Equal(r, "broken", p.Value)
				require.EqualError(r, p, "eventbus: driver's Publish panicked: broken")
				require.Contains(r, string(p.Stack), "(*broker).Publish")
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(r, []int{1, 2}, r.broker.calls())
		r.broker.set(func(b *broker) { b.panics = nil })
		for range 3 {
			wg.Go(func() { require.NoError(r, r.Publish(r.Context(), one("well"))) })
		}
		wg.Wait()
	})
}

// A message that was not stored is tried again, unless a later one with its key is stored or may
// be.
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
			inBubble(t, 0, Options{Timeout: time.Second}, func(r *rig) {
				r.broker.fail(backend.BatchError{outcomes[c.first], outcomes[c.second]})
				var msgs []*backend.Message
				for i, key := range c.keys {
					msgs = append(msgs, &backend.Message{Topic: "t", ID: fmt.Sprint(i), Key: key, Once: c.once})
				}
				require.Error(r, r.Publish(r.Context(), msgs))
				require.Equal(r, c.again, len(r.broker.calls()) > 1)
			})
		})
	}
}

// A message whose first try had an unknown outcome isn't tried again if the last try may have
// stored a later message with its key.
func TestRepeatsKeepOrderOverSeveralTries(t *testing.T) {
	for _, c := range []struct {
		second error // of the later one, while the first is certainly not stored
		tries  int
	}{{backend.ErrUnknownOutcome, 2}, {backend.ErrUnavailable, 3}} {
		inBubble(t, 0, Options{Timeout: 10 * time.Second}, func(r *rig) {
			r.broker.fail(backend.ErrUnknownOutcome)
			time.AfterFunc(time.Millisecond, func() { r.broker.fail(backend.BatchError{backend.ErrUnavailable, c.second}) })
			time.AfterFunc(150*time.Millisecond, func() { r.broker.fail(nil) }) // between the second and the third
			err := r.Publish(r.Context(), many(2))
			require.Equal(r, c.tries > 2, err == nil, "%v", err)
			require.Len(r, r.broker.calls(), c.tries)
		})
	}
}

// The error of a call that ends while its next try is waiting for a slot includes the reason of the
// last try.
func TestReasonOfTheLastTryIsKept(t *testing.T) {
	for _, perhaps := range []bool{false, true} {
		inBubble(t, 1, Options{Timeout: time.Minute}, func(r *rig) {
			last := errDown
			if perhaps {
				last = fmt.Errorf("%w: cut", backend.ErrUnknownOutcome)
			}
			r.broker.fail(last)
			ctx, cancel := context.WithTimeout(r.Context(), 150*time.Millisecond)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() {
				msgs := one("x")
				msgs[0].Once = true
				err := backend.ErrorAt(r.Publish(ctx, msgs), 0)
				require.ErrorIs(r, err, last)
				require.ErrorIs(r, err, context.DeadlineExceeded)
				require.Equal(r, !perhaps, backend.NotStored(err))
			})
			time.Sleep(90 * time.Millisecond)
			r.broker.fail(nil)
			r.broker.take(time.Second)
			require.NoError(r, r.Publish(r.Context(), one("y"))) // has the slot when the next try begins, after 100 ms
			wg.Wait()
			require.Len(r, r.broker.calls(), 2)
		})
	}
}

// If a call is split into several calls to the backend, no message is stored before an earlier one
// that is tried again.
func TestSeveralPortionsKeepOrder(t *testing.T) {
	for _, perhaps := range []error{backend.ErrUnknownOutcome, errors.New("something")} {
		inBubble(t, 0, Options{Timeout: 10 * time.Second}, func(r *rig) {
			r.broker.fail(perhaps)
			time.AfterFunc(time.Millisecond, func() { r.broker.fail(nil) })
			require.NoError(r, r.Publish(r.Context(), many(messagesPerWrite+1)))
			require.Equal(r, []int{messagesPerWrite, messagesPerWrite, 1}, r.broker.calls(), "first: %v", perhaps)
		})
	}
}

// After an outage, the first success wakes the calls that are waiting for their next try. A topic
// that keeps failing is nevertheless tried at most ten times a second.
func TestSuccessWakesWaitingCalls(t *testing.T) {
	inBubble(t, 0, Options{Timeout: 10 * time.Minute}, func(r *rig) {
		r.broker.fail(errDown)
		var wg sync.WaitGroup
		var healed time.Time
		for i := range 20 {
			wg.Go(func() {
				require.NoError(r, r.Publish(r.Context(), one(fmt.Sprint(i))))
				require.LessOrEqual(r, time.Since(healed), 100*time.Millisecond)
			})
		}
		time.Sleep(5 * time.Minute) // the waits have become long
		healed = time.Now()
		r.broker.fail(nil)
		require.NoError(r, r.Publish(r.Context(), one("first")))
		wg.Wait()

		synctest.Wait() // the queue is idle, so no write contains messages of both topics

		bad := fmt.Errorf("%w: of this topic", backend.ErrUnavailable)
		r.broker.set(func(b *broker) { b.bad = map[string]error{"bad": bad} })
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		wg.Go(func() { require.ErrorIs(r, r.Publish(ctx, to("bad", "", "x")), bad) })
		for ctx.Err() == nil {
			require.NoError(r, r.Publish(r.Context(), one("well")))
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		tries := 0
		for _, ids := range r.broker.ids {
			if ids[0] == "x" {
				tries++
			}
		}
		require.InDelta(r, 100, tries, 20)
	})
}
