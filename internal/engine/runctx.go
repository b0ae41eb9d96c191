package engine

import (
	"context"
	"sync"
	"time"
)

// A runCtx is the context of one run of a handler. It makes a context of package context,
// called inner, only when a method such as Done needs it, because inner is expensive.
// Contexts derived from a runCtx are then derived from inner, and so need no goroutine.
type runCtx struct {
	ground   *ground
	deadline moment // zero: none

	mu    sync.Mutex
	cause error                   // why the context has ended; nil: not yet, or inner has it
	inner context.Context         // nil until it is needed
	end   context.CancelCauseFunc // cancels inner
	tag   any                     // for the observer; see Tag
}

// A ground has the parts that the contexts of all runs of a subscription share.
type ground struct {
	clock
	values  context.Context
	timeout error // the cause when a run ends at its deadline
}

var _ context.Context = (*runCtx)(nil)

func (c *runCtx) begin(on *ground, deadline moment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ground, c.deadline = on, deadline
	c.cause, c.inner, c.end, c.tag = nil, nil, nil, nil
}

func (c *runCtx) Deadline() (time.Time, bool) {
	return c.ground.time(c.deadline), c.deadline != 0
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
	case c.inner != nil:
		return c.inner.Err()
	case c.cause == nil:
		return nil
	case isTimeout(c.cause):
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value returns the values of the context of Subscribe. After the end of c it asks inner,
// so that context.Cause returns the cause.
func (c *runCtx) Value(key any) any {
	if key == (runKey{}) {
		return c
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil && c.cause == nil {
		return c.ground.values.Value(key)
	}
	return c.made().Value(key)
}

// made returns inner, and makes it if needed. inner ends by itself at the deadline. The
// caller holds mu.
func (c *runCtx) made() context.Context {
	if c.inner != nil {
		return c.inner
	}
	from, stop := c.ground.values, context.CancelFunc(func() {})
	if c.deadline != 0 {
		from, stop = context.WithDeadlineCause(from, c.ground.time(c.deadline), c.ground.timeout)
	}
	inner, end := context.WithCancelCause(from)
	c.inner, c.end = inner, func(cause error) { end(cause); stop() }
	if c.cause != nil {
		c.end(c.cause)
	}
	return c.inner
}

// cancel ends the context with cause; the error is context.DeadlineExceeded if cause is a
// timeout. Only the first call has an effect. A call before the run begins has none.
func (c *runCtx) cancel(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ground == nil:
	case c.inner != nil && !isTimeout(cause): // inner ends by itself at its deadline
		c.end(cause)
	case c.inner == nil && c.cause == nil:
		c.cause = cause
	}
}

// finish ends the context of a run that is over.
func (c *runCtx) finish() { c.cancel(context.Canceled) }

// runKey is the key of Value that returns the runCtx itself, also from a context that a
// handler derived from it.
type runKey struct{}

// Tag sets the tag of the run to which ctx belongs. The observer gets the tag with each
// report about the run and its settlement. If ctx belongs to no run, Tag does nothing.
func Tag(ctx context.Context, tag any) {
	c, ok := ctx.Value(runKey{}).(*runCtx)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tag = tag
}

// tagged returns the tag of the run; nil: none.
func (c *runCtx) tagged() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tag
}
