package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// A guardedLimiter is a Limiter of the program. A panic of its methods becomes an error, so
// that it ends neither the process nor the fetcher.
type guardedLimiter struct {
	limiter.Limiter
	notifier *notifier
}

// Guard returns l, guarded against panics and against grants of no place.
func (e *Engine) Guard(l limiter.Limiter) limiter.Limiter { return guardedLimiter{l, e.notifier} }

var errNoGrant = errors.New("Acquire granted no place, and returned no error")

// Acquire also returns an error if the limiter grants no place without one, because the
// fetcher would ask again at once.
func (g guardedLimiter) Acquire(ctx context.Context, most int) (granted limiter.Grant, err error) {
	defer recovered(&err)
	granted, err = g.Limiter.Acquire(ctx, most)
	if granted.Messages <= 0 && err == nil && ctx.Err() == nil {
		err = errNoGrant
	}
	return limiter.Grant{Messages: min(max(granted.Messages, 0), most), Bytes: max(granted.Bytes, 0)}, err
}

func (g guardedLimiter) Fill(granted limiter.Grant, n int, bytes int64) {
	g.guard("Fill", func() { g.Limiter.Fill(granted, n, bytes) })
}

func (g guardedLimiter) Release(r limiter.Released) {
	g.guard("Release", func() { g.Limiter.Release(r) })
}

func (g guardedLimiter) guard(method string, f func()) {
	if err := guarded(func() error { f(); return nil }); err != nil {
		g.notifier.failed(observer.Panic, observer.About{}, 0, fmt.Errorf("limiter: %s: %w", method, err))
	}
}
