package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/seed41896749/eventbus/limiter"
	"github.com/seed41896749/eventbus/observer"
)

// callDriver calls f, which calls a method of the driver, and returns its error. If f panics, the
// error is a PanicError that names the method.
func callDriver(method string, f func() error) error {
	err := guarded(f)
	if p, ok := err.(*observer.PanicError); ok { //nolint:errorlint // guarded returns it unwrapped
		p.Where = "driver's " + method
	}
	return err
}

// guarded calls f and returns its error, or a PanicError if f panics.
func guarded(f func() error) (err error) {
	defer recovered(&err)
	return f()
}

var errNone = errors.New("matches no error")

// Inspected calls the methods Unwrap, Is and As of err and of the errors it wraps. It returns err,
// or a PanicError if one of them panics, as a nil pointer in err may cause.
func Inspected(err error) (result error) {
	if err == nil {
		return nil
	}
	defer recovered(&result)
	_ = errors.Is(err, errNone)
	_, _ = errors.AsType[*observer.PanicError](err)
	return err
}

// recovered turns a panic into a PanicError.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &observer.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// A guardedLimiter wraps a Limiter of the program. It turns panics of its methods into errors, so
// that they end neither the process nor the fetcher.
type guardedLimiter struct {
	limiter.Limiter
	notifier *notifier
}

// Guard wraps l to protect the bus from panics and empty grants.
func (e *Engine) Guard(l limiter.Limiter) limiter.Limiter { return guardedLimiter{l, e.notifier} }

var errNoGrant = errors.New("Acquire granted nothing and returned no error")

// Acquire also returns an error if the limiter grants nothing without one, because the fetcher
// would ask again at once.
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
