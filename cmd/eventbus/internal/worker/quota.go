package worker

import (
	"context"
	"sync"

	"github.com/seed41896749/eventbus/limiter"
)

// A Quota is a limiter that lets a given number of events succeed and no more. It never grants more slots than events have
// yet to succeed, so a member reads no more events than wanted, even with retries and with events acknowledged on receipt.
// It also asks an inner limiter, which may grant fewer.
type Quota struct {
	inner limiter.Limiter

	mu      sync.Mutex
	left    int // events that have yet to succeed
	held    int
	changed chan struct{} // closed and replaced when slots are given back
	done    chan struct{} // closed when left is 0
}

var _ limiter.Limiter = (*Quota)(nil)

// NewQuota returns a Quota of n events, which must be positive.
func NewQuota(n int, inner limiter.Limiter) *Quota {
	return &Quota{inner: inner, left: n, changed: make(chan struct{}), done: make(chan struct{})}
}

// Succeeded records that a held event has succeeded.
func (q *Quota) Succeeded() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left--; q.left == 0 {
		close(q.done)
	}
}

// Done returns a channel that is closed when all n events have succeeded.
func (q *Quota) Done() <-chan struct{} { return q.done }

// Acquire implements [limiter.Limiter].
func (q *Quota) Acquire(ctx context.Context, limit int) (limiter.Grant, error) {
	for {
		n, changed := q.take(limit)
		if n > 0 {
			granted, err := q.inner.Acquire(ctx, n)
			q.giveBack(n - granted.Messages)
			return granted, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return limiter.Grant{}, context.Cause(ctx)
		}
	}
}

// take takes at most limit slots, without asking the inner limiter. If it takes none, the caller waits until the channel is
// closed.
func (q *Quota) take(limit int) (int, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// For a moment, an event that has succeeded but still holds its slot counts twice, in left and in held.
	n := max(min(limit, q.left-q.held), 0)
	q.held += n
	return n, q.changed
}

// Fill implements [limiter.Limiter].
func (q *Quota) Fill(g limiter.Grant, n int, bytes int64) {
	q.inner.Fill(g, n, bytes)
	q.giveBack(g.Messages - n)
}

// Release implements [limiter.Limiter].
func (q *Quota) Release(r limiter.Released) {
	q.inner.Release(r)
	q.giveBack(r.Settled)
}

func (q *Quota) giveBack(n int) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= n
	close(q.changed)
	q.changed = make(chan struct{})
}
