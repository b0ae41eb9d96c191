package engine

import (
	"context"
	"sync"
	"time"
)

// A runCtx is the context of one run of a handler. Every event has one, so it is small. Only when a
// method such as Done needs it does a runCtx create a context of package context, called inner,
// because inner is expensive. Contexts that are derived from a runCtx are then derived from inner,
// and so need no goroutine.
type runCtx struct {
	env      *runEnv
	deadline instant // zero for none

	mu    sync.Mutex
	inner *inner // nil until it is needed; the value ended if the run ended before that
	tag   any    // for the observer; see Tag
}

// ended is the inner of a run that has ended, until a real inner is needed.
var ended = &inner{}

// An inner is the context of package context behind a runCtx.
type inner struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // frees the timer of the deadline
}

func (i *inner) end(cause error) {
	i.cancel(cause)
	i.stop()
}

// A runEnv is what the contexts of all runs of a subscription share.
type runEnv struct {
	clock
	values  context.Context
	timeout error // the cause when a run reaches its deadline
}

var _ context.Context = (*runCtx)(nil)

// prepare makes c usable. Nobody else may be using it yet.
func (c *runCtx) prepare(on *runEnv) { c.env = on }

// limit sets the deadline of a run that is about to start, unless the context has already ended.
func (c *runCtx) limit(deadline instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.deadline = deadline
	}
}

func (c *runCtx) Deadline() (time.Time, bool) {
	return c.env.time(c.deadline), c.deadline != 0
}

func (c *runCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

func (c *runCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner == nil:
		return nil
	case c.inner == ended:
		return context.Canceled
	}
	return c.inner.Err()
}

// Value returns the values of the context of Subscribe. After the end of c it consults inner, so
// that context.Cause returns the cause.
func (c *runCtx) Value(key any) any {
	if key == (runKey{}) {
		return c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		return c.env.values.Value(key)
	}
	return c.made().Value(key)
}

// made returns inner, and creates it if needed. inner ends by itself at the deadline. The caller
// holds mu.
func (c *runCtx) made() *inner {
	over := c.inner == ended
	if c.inner != nil && !over {
		return c.inner
	}
	from, stop := c.env.values, context.CancelFunc(func() {})
	if c.deadline != 0 {
		from, stop = context.WithDeadlineCause(from, c.env.time(c.deadline), c.env.timeout)
	}
	ctx, cancel := context.WithCancelCause(from)
	c.inner = &inner{ctx, cancel, stop}
	if over {
		c.inner.end(context.Canceled)
	}
	return c.inner
}

// cancel ends the context with cause. Only the first call has an effect. With a timeout, inner ends
// by itself, because its deadline has passed.
func (c *runCtx) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == ended {
		return
	}
	if i := c.made(); !isTimeout(cause) {
		i.end(cause)
	}
}

// finish ends the context of a run that is over.
func (c *runCtx) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.inner {
	case nil:
		c.inner = ended
	case ended:
	default:
		c.inner.end(context.Canceled)
	}
}

// runKey is the key for which Value returns the runCtx itself, even on a context that a handler has
// derived from it.
type runKey struct{}

// Running reports whether ctx belongs to a run of s whose handler has not returned.
func (s *Subscription) Running(ctx context.Context) bool {
	c, ok := ctx.Value(runKey{}).(*runCtx)
	if !ok || c.env != &s.runEnv {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner != ended && (c.inner == nil || c.inner.Err() == nil)
}

// Tag sets the tag of the run to which ctx belongs. The observer gets the tag with each report
// about the run and its settlement. If ctx doesn't belong to a run, Tag does nothing.
func Tag(ctx context.Context, tag any) {
	c, ok := ctx.Value(runKey{}).(*runCtx)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tag = tag
}

// tagged returns the tag of the run, or nil if it has none.
func (c *runCtx) tagged() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tag
}
