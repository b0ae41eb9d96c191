package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A runCtx is the context of one run of a handler. Those of a read are made
// together, and one costs nothing until somebody asks for Done: no channel, no
// timer (the subscription's watch cancels it), no goroutine for contexts derived
// from it (they find AfterFunc).
type runCtx struct {
	ground   *ground
	deadline moment

	state atomic.Uint32 // what most runs need beside, without a lock

	mu    sync.Mutex
	extra *runExtra // if the state is extended
}

// The states of a runCtx.
const (
	unbegun  uint32 = iota
	plain           // the run is on
	finished        // it is over, and was plain
	extended        // somebody has asked for more, or has cancelled it
)

// A ground is what all runs of a subscription stand on.
type ground struct {
	clock
	values context.Context
}

// A runExtra is what few runs need.
type runExtra struct {
	done  chan struct{}
	err   error              // set once, by cancel
	cause context.Context    // cancelled with the cause: where context.Cause finds it
	after map[*func()]func() // what AfterFunc was given
}

var _ context.Context = (*runCtx)(nil)

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (c *runCtx) begin(on *ground, deadline moment) {
	c.ground, c.deadline = on, deadline
	c.state.Store(plain)
}

func (c *runCtx) Deadline() (time.Time, bool) {
	if c.deadline == 0 {
		return time.Time{}, false
	}
	return c.ground.time(c.deadline), true
}

func (c *runCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.more()
	if x == nil {
		return closedChan
	}
	if x.done == nil {
		x.done = make(chan struct{})
	}
	return x.done
}

// more returns what few runs need; nil if the run is over. The caller holds mu.
func (c *runCtx) more() *runExtra {
	if c.state.CompareAndSwap(plain, extended) {
		c.extra = &runExtra{}
	}
	return c.extra
}

func (c *runCtx) Err() error {
	switch c.state.Load() {
	case finished:
		return context.Canceled
	case extended:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.extra.err
	}
	return nil
}

// Value finds what the Subscribe context carries and, once cancelled, the cause.
func (c *runCtx) Value(key any) any {
	from := c.ground.values
	if c.state.Load() == extended {
		c.mu.Lock()
		if c.extra.cause != nil {
			from = c.extra.cause
		}
		c.mu.Unlock()
	}
	return from.Value(key)
}

// AfterFunc lets package context derive from runCtx without a goroutine.
func (c *runCtx) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.more()
	if x == nil || x.err != nil {
		go f()
		return func() bool { return false }
	}
	if x.after == nil {
		x.after = map[*func()]func(){}
	}
	id := &f
	x.after[id] = f
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := x.after[id]
		delete(x.after, id)
		return waiting
	}
}

// cancel ends the context: Err is err, context.Cause is cause. Later calls
// change nothing, nor do calls before the run begins.
func (c *runCtx) cancel(err, cause error) {
	if c.state.Load() == unbegun {
		return
	}
	c.mu.Lock()
	x := c.more()
	if x == nil || x.err != nil {
		c.mu.Unlock()
		return
	}
	x.err = err
	if cause != err { //nolint:errorlint // the same value, not the same kind
		carrier, carry := context.WithCancelCause(c.ground.values)
		carry(cause)
		x.cause = carrier
	}
	if x.done == nil {
		x.done = closedChan
	} else {
		close(x.done)
	}
	after := x.after
	x.after = nil
	c.mu.Unlock()
	for _, f := range after {
		go f()
	}
}

// finish ends the context of a run that is over.
func (c *runCtx) finish() {
	if !c.state.CompareAndSwap(plain, finished) {
		c.cancel(context.Canceled, context.Canceled)
	}
}
