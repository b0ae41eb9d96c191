// Package rate has a limiter of messages a second.
package rate

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed41896749/eventbus/limiter"
)

// A bucket has a token for each message that may come. A token is spent when its message
// has come, so a read that brings nothing costs none.
type bucket struct {
	mu      sync.Mutex
	tokens  *rate.Limiter
	granted int // places without a message
}

var _ limiter.Limiter = (*bucket)(nil)

// New returns a limiter of perSecond messages a second, which may come as burst messages
// at once. In any time t, at most burst + t·perSecond messages come. Places of settled
// messages do not return. New panics if perSecond or burst is not positive.
//
// Subscriptions that are given the same limiter share the rate. One whose topic is empty
// takes nothing from the others. Therefore each further subscription may be one message
// ahead of the rate, for which later messages wait longer.
func New(perSecond float64, burst int) limiter.Limiter {
	if !(perSecond > 0) || burst < 1 {
		panic("rate: New needs a positive rate and a positive burst")
	}
	return &bucket{tokens: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (b *bucket) Acquire(ctx context.Context, max int) (int, error) {
	for {
		n, wait := b.take(max)
		if n > 0 {
			return n, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, context.Cause(ctx)
		}
	}
}

// take grants up to max, or returns how long to wait for the next token. If places of
// other subscriptions are waiting for messages, it grants one place all the same, because
// such a wait may be long.
func (b *bucket) take(max int) (n int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := b.tokens.Tokens()
	if tokens < 1 {
		seconds := (1 - tokens) / float64(b.tokens.Limit())
		return 0, time.Duration(min(math.Ceil(seconds*float64(time.Second)), float64(time.Hour)))
	}
	n = min(max, int(tokens)-b.granted)
	if n < 1 {
		n = 1
	}
	b.granted += n
	return n, 0
}

func (b *bucket) Fill(n int, _ int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted -= n
	b.tokens.ReserveN(time.Now(), n) // at once, or in debt
}

func (b *bucket) Release(r limiter.Released) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.granted -= r.Unused; b.granted < 0 {
		panic(errors.New("rate: more released than granted"))
	}
}
