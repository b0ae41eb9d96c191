// Package rate provides a limiter of messages per second.
package rate

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/limiter"
)

// A bucket is a token bucket with a token for each message that may be read now. A token is spent
// once its message has been read, so a read without messages costs nothing.
type bucket struct {
	mu      sync.Mutex
	tokens  *rate.Limiter
	granted int // granted slots that hold no message yet
}

var _ limiter.Limiter = (*bucket)(nil)

// New returns a limiter that lets perSecond messages be read per second, and at most burst of them
// at once. In t seconds a subscription reads at most burst + t·perSecond messages. Slots become
// free with time, not when messages are settled. New panics if perSecond or burst is not positive.
//
// Subscriptions with the same limiter share the rate. One that waits for messages of an empty topic
// takes nothing from the others. In return, several subscriptions together may exceed the limit by
// burst, and by one message each; later messages then wait longer.
func New(perSecond float64, burst int) limiter.Limiter {
	if !(perSecond > 0) || burst < 1 {
		panic("rate: New needs a positive rate and a positive burst")
	}
	return &bucket{tokens: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (b *bucket) Acquire(ctx context.Context, max int) (limiter.Grant, error) {
	for {
		n, delay := b.take(max)
		if n > 0 {
			return limiter.Grant{Messages: n}, nil
		}
		if !wait.Sleep(ctx, delay) {
			return limiter.Grant{}, context.Cause(ctx)
		}
	}
}

const maxTokens = 1 << 30 // more are not counted, so that no sum overflows

// take grants at most max slots. Without a token it grants none, and returns how long to wait for
// the next one. If granted slots without messages claim all tokens, take still grants one, because
// the reads that hold them may wait for long.
func (b *bucket) take(max int) (n int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tokens := b.tokens.Tokens()
	if tokens < 1 {
		seconds := (1 - tokens) / float64(b.tokens.Limit())
		return 0, time.Duration(min(math.Ceil(seconds*float64(time.Second)), float64(time.Hour)))
	}
	n = min(max, int(min(tokens, maxTokens))-b.granted)
	if n < 1 {
		n = 1
	}
	b.granted += n
	return n, 0
}

func (b *bucket) Fill(g limiter.Grant, n int, _ int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.granted -= g.Messages; b.granted < 0 {
		panic(errors.New("rate: more filled than granted"))
	}
	b.tokens.ReserveN(time.Now(), n) // after this call the number of tokens may be negative
}

// Release does nothing, because slots become free with time.
func (b *bucket) Release(limiter.Released) {}
