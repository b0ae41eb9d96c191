package engine

import (
	"context"
	"sync"
	"time"
)

// runCtx is the context of one run of a handler. It is part of its Hold, so it
// costs nothing until somebody asks for Done: no channel, no timer (the
// subscription's watch cancels it), no goroutine for contexts derived from it
// (they find AfterFunc).
type runCtx struct {
	base     context.Context // values only
	deadline time.Time

	mu    sync.Mutex
	done  chan struct{}      // made when asked for
	err   error              // set once, by cancel
	cause context.Context    // cancelled with the cause: where context.Cause finds it
	after map[*func()]func() // what AfterFunc was given
}

var _ context.Context = (*runCtx)(nil)

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *runCtx) begin(base context.Context, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base, c.deadline = base, deadline
	c.done, c.err, c.cause, c.after = nil, nil, nil, nil
}

func (c *runCtx) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *runCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		if c.err != nil {
			c.done = closedChan
		} else {
			c.done = make(chan struct{})
		}
	}
	return c.done
}

func (c *runCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Value finds what the Subscribe context carries and, once cancelled, the cause.
func (c *runCtx) Value(key any) any {
	c.mu.Lock()
	from := c.cause
	c.mu.Unlock()
	if from == nil {
		from = c.base
	}
	return from.Value(key)
}

// AfterFunc lets package context derive from runCtx without a goroutine.
func (c *runCtx) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = map[*func()]func(){}
	}
	id := &f
	c.after[id] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[id]
		delete(c.after, id)
		return waiting
	}
}

// cancel ends the context: Err is err, context.Cause is cause. Later calls
// change nothing, nor do calls before the run begins.
func (c *runCtx) cancel(err, cause error) {
	c.mu.Lock()
	if c.err != nil || c.base == nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	if cause != err { //nolint:errorlint // the same value, not the same kind
		carrier, carry := context.WithCancelCause(c.base)
		carry(cause)
		c.cause = carrier
	}
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		go f()
	}
}

// finish ends the context of a run that is over.
func (c *runCtx) finish() { c.cancel(context.Canceled, context.Canceled) }
