package engine

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

func delivery(position string, attempt int) *backend.Delivery {
	return &backend.Delivery{Message: backend.Message{Position: position}, Attempt: attempt}
}

// If the backend counts every receipt, the bus subtracts the receipts without a run.
func TestSparedReceiptsDoNotCount(t *testing.T) {
	var a attempts
	require.Equal(t, 3, a.of(delivery("1", 3)))
	a.expect(delivery("1", 3), 3)
	a.expect(delivery("1", 4), 3)
	require.Equal(t, 3, a.of(delivery("1", 5)))
	require.Equal(t, 5, a.of(delivery("2", 5)), "another message")
	a.forget(delivery("1", 5))
	require.Equal(t, 5, a.of(delivery("1", 5)))
	require.Equal(t, 1, a.of(delivery("1", 1)))
}

// Attempts that a resting Hold has made are counted after it was given back.
func TestAttemptsOfOneReceiptCount(t *testing.T) {
	var a attempts
	a.expect(delivery("1", 1), 3)
	require.Equal(t, 3, a.of(delivery("1", 2)))
}

// Attempts that a resting Hold has made are counted after the last one was left to its
// lease.
func TestAttemptsBeforeATimeoutCount(t *testing.T) {
	var a attempts
	a.failed(delivery("1", 1), 3)
	require.Equal(t, 4, a.of(delivery("1", 2)))
	a.failed(delivery("1", 2), 2)
	require.Equal(t, 4, a.of(delivery("1", 2)), "nothing was missed")
	a.failed(delivery("2", 0), 3)
	require.Equal(t, 4, a.of(delivery("2", 0)), "the backend counts nothing")
}

// A backend may refund attempts though its Limits do not say so, because a wrapper hides
// them. Then nothing is subtracted.
func TestSparedReceiptsThatTheBackendSparesToo(t *testing.T) {
	var a attempts
	require.Equal(t, 2, a.of(delivery("1", 2)))
	for range 5 {
		a.expect(delivery("1", 2), 2)
		require.Equal(t, 2, a.of(delivery("1", 2)))
	}
	require.Equal(t, 3, a.of(delivery("1", 3)))
	a.expect(delivery("1", 3), 3)
	require.Equal(t, 3, a.of(delivery("1", 4)), "it counted this one")
}

// The bus counts attempts for a backend that counts none.
func TestFailedAttemptsAreCounted(t *testing.T) {
	var a attempts
	require.Equal(t, 1, a.of(delivery("1", 0)))
	a.failed(delivery("1", 0), 1)
	require.Equal(t, 2, a.of(delivery("1", 0)))
	a.expect(delivery("1", 0), 2)
	require.Equal(t, 2, a.of(delivery("1", 0)))
	a.forget(delivery("1", 0))
	require.Equal(t, 1, a.of(delivery("1", 0)))
}

// Memory is bounded, even if no counted event is redelivered.
func TestCountedAttemptsAreBounded(t *testing.T) {
	var a attempts
	for i := range maxCounted + 100 {
		a.expect(delivery(strconv.Itoa(i), 1), 1)
	}
	require.Len(t, a.next, maxCounted)
}

// An event whose attempts were made in the member, and whose last of them timed out, has all
// of them after its lease, although the backend has counted one receipt.
func TestAttemptsOfALeftEventCount(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		p := policy(4, func(*Hold, error) time.Duration { return time.Second })
		p.LeaveTimeouts = true
		var attempts []int
		s := r.sub(Config{Timeout: 10 * time.Second, Policy: p}, func(ctx context.Context, h *Hold) error {
			if attempts = append(attempts, h.Attempt()); h.Attempt() == 3 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errors.New("no")
		})
		r.publishKeyed("key", "x")
		r.pass(10 * time.Minute)
		require.Equal(t, []int{1, 2, 3, 4}, attempts)
		require.Equal(t, int64(1), s.Counts().Discarded)
	})
}

// After ResetGroup the attempts of an event begin with 1 again, although the member has
// counted earlier ones.
func TestAttemptsBeginAgainAfterAReset(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.wire.noRefund = true
		r.limits = r.wire.Limits()
		var attempts []int
		r.sub(Config{Policy: policy(3, func(h *Hold, _ error) time.Duration { return time.Duration(h.Attempt()) * 10 * time.Second })},
			func(_ context.Context, h *Hold) error {
				attempts = append(attempts, h.Attempt())
				return errors.New("no")
			})
		r.publishKeyed("key", "x")
		r.pass(15 * time.Second)
		require.Equal(r, []int{1, 2}, attempts)
		admin, _ := backend.As[backend.Admin](r.wire)
		require.NoError(r, admin.ResetGroup(r.Context(), "t", "g", backend.StartEarliest))
		r.pass(time.Hour)
		require.Equal(r, []int{1, 2, 1, 2, 3}, attempts)
	})
}
