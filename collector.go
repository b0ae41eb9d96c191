package eventbus

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/internal/engine"
	"github.com/seed41896749/eventbus/observer"
)

// A collector makes batches of events. The engine calls its method handle for each event.
// Each call of the program's BatchHandler runs on a goroutine of its own, and the calls of
// handle for the events of its batch wait for that goroutine.
type collector struct {
	Batch
	handler BatchHandler
	calls   int             // the most calls that may run at the same time
	timeout time.Duration   // of each call; negative: no timeout
	shelve  bool            // events that expire become dead letters
	last    int             // of the MaxAttempts above 1 in Retry.Rules, the least; 0: there is none
	values  context.Context // the parent of the context of each call

	patience time.Duration // the most time that an event waits for its call to begin; negative: no bound
	most     time.Duration // the timeout of the engine for an event; negative: none

	mu       sync.Mutex
	full     []*call // calls that take no more events and have not begun, oldest first
	open     *call   // the call that takes further events; nil if there is none
	running  int     // the number of calls that run now
	draining bool
	timer    *time.Timer // calls next when MaxWait of the open call has passed
}

// A call is one call of the BatchHandler, with the events of its batch.
type call struct {
	members []*member
	bytes   int64
	opened  time.Time
	begun   bool
	done    chan struct{} // closed when the members have their results
}

// A member is one event of a batch.
type member struct {
	ctx context.Context
	*Delivery
	err error // the result of the event; valid after done of the call is closed
}

func newCollector(values context.Context, o SubscribeOptions, b Batch, h BatchHandler) *collector {
	c := &collector{Batch: b, handler: h, calls: o.Concurrency, timeout: o.Timeout, shelve: o.DeadLetterExpired, values: values}
	c.patience, c.most = b.bounds(o.Timeout)
	c.last = leastAttempts(o.Retry.Rules)
	return c
}

// alone reports whether d is to be handled in a batch of its own: one more failure may be
// the last that d is allowed, and other events of a batch must not cause it.
func (c *collector) alone(d *Delivery) bool {
	return d.MaxAttempts > 1 && d.LastAttempt() || c.last > 0 && d.Attempt >= c.last
}

// handle is the Handler of each single event: the event joins a call, and handle returns
// the event's result.
func (c *collector) handle(ctx context.Context, d *Delivery) error {
	m := &member{ctx: ctx, Delivery: d}
	joined := c.join(m) //nolint:contextcheck // a call has a context of its own
	var late <-chan time.Time
	if c.patience >= 0 {
		timer := time.NewTimer(c.patience)
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-joined.done:
		return m.err
	case <-late: // a call that began later would not have all of its timeout
		err = engine.Waited()
	case <-ctx.Done():
		if err = error(&observer.NotRunError{Err: context.Cause(ctx)}); c.isOver(ctx) {
			err = engine.Waited()
		}
	}
	if !c.leave(joined, m) {
		<-joined.done
		return m.err
	}
	return err
}

// isOver reports whether ctx, of an event, has ended by the timeout of the engine. That can
// be before the timeout of its call only if middleware took time before handle.
func (c *collector) isOver(ctx context.Context) bool {
	t, ok := errors.AsType[*observer.TimeoutError](context.Cause(ctx))
	return ok && t.After == c.most
}

// join adds m to the open call, or to a new call, and returns that call.
func (c *collector) join(m *member) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	alone, size := c.alone(m.Delivery), int64(len(m.Payload))
	if c.open != nil && (alone || c.MaxBytes > 0 && c.open.bytes+size > c.MaxBytes) {
		c.close()
	}
	if c.open == nil {
		c.open = &call{opened: time.Now(), done: make(chan struct{})}
	}
	joined := c.open
	joined.members, joined.bytes = append(joined.members, m), joined.bytes+size
	if alone || len(joined.members) >= c.MaxSize || c.MaxBytes > 0 && joined.bytes >= c.MaxBytes {
		c.close()
	}
	c.next()
	return joined
}

// close lets the open call take no more events. The caller holds mu.
func (c *collector) close() { c.full, c.open = append(c.full, c.open), nil }

// leave removes m from a call that has not begun. It returns false if the call has begun.
func (c *collector) leave(from *call, m *member) (left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from.begun {
		return false
	}
	from.members = slices.DeleteFunc(from.members, func(o *member) bool { return o == m })
	from.bytes -= int64(len(m.Payload))
	if c.open == from && len(from.members) == 0 {
		c.open = nil
	}
	return true
}

// next begins the full calls, and the open call if its MaxWait has passed, as far as
// c.calls allows. The caller holds mu.
func (c *collector) next() {
	for c.running < c.calls {
		if len(c.full) == 0 && c.open != nil {
			if wait := c.MaxWait - time.Since(c.open.opened); wait > 0 && !c.draining {
				c.wakeIn(wait)
				return
			}
			c.close()
		}
		if len(c.full) == 0 {
			return
		}
		first := c.full[0]
		c.full = slices.Delete(c.full, 0, 1)
		first.begun = true
		c.expire(first)
		if len(first.members) > 0 {
			c.running++
			go c.run(first)
		} else { // all members have left the call, or have expired
			close(first.done)
		}
	}
}

// expire removes the members of r that have expired while they waited, with their results.
func (c *collector) expire(r *call) {
	r.members = slices.DeleteFunc(r.members, func(m *member) bool {
		m.err = m.expired(c.shelve)
		return m.err != nil
	})
}

// wakeIn calls next after d.
func (c *collector) wakeIn(d time.Duration) {
	if c.timer != nil {
		c.timer.Reset(d)
		return
	}
	c.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.next()
	})
}

// drain begins the open call immediately. From now on no call waits for MaxWait.
func (c *collector) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.next()
}

// run calls the handler with the events of r. If the handler panics or ends its goroutine,
// all events of r have failed.
func (c *collector) run(r *call) {
	ds := make([]*Delivery, len(r.members))
	for i, m := range r.members {
		ds[i] = m.Delivery
	}
	ctx, end := c.context(r)
	var errs []error
	returned := false
	defer func() {
		if !returned { // the handler has ended its goroutine
			errs = slices.Repeat([]error{&observer.PanicError{Stack: debug.Stack()}}, len(r.members))
		}
		timeout, late := errors.AsType[*observer.TimeoutError](context.Cause(ctx))
		end()
		for i, m := range r.members {
			if m.err = errs[i]; late && m.err != nil && !errors.Is(m.err, timeout) {
				m.err = fmt.Errorf("%w: %w", timeout, m.err)
			}
		}
		c.ended(r) //nolint:contextcheck // another call has a context of its own
	}()
	errs = results(len(ds), func() []error { return c.handler(ctx, ds) })
	returned = true
	for i, err := range errs {
		errs[i] = engine.Inspected(err)
	}
}

// ended wakes the calls of handle that wait for r, and begins the next calls. The members
// of r already have their results.
func (c *collector) ended(r *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.next()
	close(r.done)
}

// context returns the context for the handler's call r. The context ends with the timeout
// of the call, with a shutdown, or when the context of every event of r has ended by another
// cause.
func (c *collector) context(r *call) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(c.values)
	release := context.CancelFunc(func() {})
	if c.timeout > 0 {
		ctx, release = context.WithTimeoutCause(ctx, c.timeout, &observer.TimeoutError{After: c.timeout})
	}
	var left atomic.Int64
	left.Store(int64(len(r.members)))
	stops := make([]func() bool, len(r.members))
	for i, m := range r.members {
		stops[i] = context.AfterFunc(m.ctx, func() {
			cause := context.Cause(m.ctx)
			if errors.Is(cause, ErrShutdown) || !c.isOver(m.ctx) && left.Add(-1) == 0 {
				cancel(cause)
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
		release()
	}
}

// results calls a batch handler, and returns one result for each of its n events. A panic is
// the result of each event.
func results(n int, handle func() []error) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			errs = slices.Repeat([]error{&observer.PanicError{Value: v, Stack: debug.Stack()}}, n)
		}
	}()
	switch errs := handle(); {
	case errs == nil:
		return make([]error, n)
	case len(errs) != n:
		return slices.Repeat([]error{fmt.Errorf("eventbus: the batch handler returned %d results for %d events", len(errs), n)}, n)
	default:
		return slices.Clone(errs) // the handler may use its slice again
	}
}
