// Package publish turns the messages of many callers into few large writes.
package publish

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// Options configures a Publisher.
type Options struct {
	Timeout         time.Duration // limits one call, including all its tries; 0 for no limit
	MaxPending      int           // limits the messages of all calls under way; 0 for no limit
	MaxPendingBytes int           // limits the bytes of these messages; 0 for no limit
	WhenFull        WhenFull

	// Recovery ends the waits between tries early. If it is nil, New creates one.
	Recovery *wait.Recovery

	// NewBackoff returns a function that returns the delay before each further try of one call. If
	// it is nil, wait.Broker is used.
	NewBackoff func() func() time.Duration
}

// A Publisher stores messages. Its methods are safe for concurrent use.
//
// It has a slot for each concurrent write (see backend.Limits.Publishers). A caller that finds a
// free slot writes its messages itself. Otherwise its call waits in a queue. Goroutines take slots
// and each write their share of the queue in one write, until the queue is empty. A silent write
// doesn't hold up other calls; see flight.go.
type Publisher struct {
	writer
	calls
	timeout    time.Duration
	newBackoff func() func() time.Duration
	running    sync.WaitGroup // the goroutines that write waiting calls
	timers     sync.Pool      // not global, because a timer belongs to one synctest bubble
	unused     sync.Pool      // calls that have ended, for reuse
	batches    sync.Pool      // memory for the goroutines that write waiting calls
}

// New returns a Publisher that writes to b.
func New(b backend.Backend, o Options) *Publisher {
	p := &Publisher{timeout: o.Timeout, newBackoff: o.NewBackoff}
	if p.newBackoff == nil {
		p.newBackoff = func() func() time.Duration { b := wait.Broker(); return b.Next }
	}
	p.writer = newWriter(b, o.Timeout, cmp.Or(o.Recovery, &wait.Recovery{}))
	p.maxMessages, p.maxBytes, p.whenFull = o.MaxPending, o.MaxPendingBytes, o.WhenFull
	p.free = cmp.Or(p.limits.Publishers, defaultSlots)
	p.flights = newFlights(p.free)
	p.unused.New = func() any { return &call{woken: make(chan struct{}, 1)} }
	p.batches.New = func() any { return &batch{} }
	p.timers.New = func() any { return time.NewTimer(time.Hour) }
	return p
}

// Publish stores msgs. The error is nil or a BatchError with one entry for each message. Once
// Publish has returned, msgs are no longer used, with one exception: if the error of a message
// matches ErrUnknownOutcome, its headers may still be read.
func (p *Publisher) Publish(ctx context.Context, msgs []*backend.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return all(len(msgs), notSent(err))
	}
	began := time.Now()
	c := p.unused.Get().(*call)
	c.ctx, c.until, c.msgs, c.size, c.certain = ctx, p.deadline(began), msgs, sizeOf(msgs), true
	if err := p.enter(c); err != nil {
		return all(len(msgs), err)
	}
	defer p.end(c)
	return p.store(c, began)
}

// enter waits until c fits into the limits.
func (p *Publisher) enter(c *call) error {
	if waits, err := p.calls.enter(c); !waits {
		return err
	}
	reason := p.wait(c.ctx, c.until, c.woken, nil)
	switch {
	case reason == nil, !p.giveUp(c): // c has entered, perhaps just now
		return nil
	case reason == p.late: //nolint:errorlint // this one
		return notSent(fmt.Errorf("%w %w", ErrBackpressure, reason))
	}
	return notSent(reason)
}

// end ends c, and keeps its memory for a later call unless the queue is still writing c.
func (p *Publisher) end(c *call) {
	p.leave(c)
	if c.state != left {
		*c = call{woken: c.woken}
		select {
		case <-c.woken: // c was dropped while its caller wasn't waiting
		default:
		}
		p.unused.Put(c)
	}
}

// pause waits after a failed try of c, until next. It returns early, but not at once, when another
// call to the broker succeeds. It returns p.late unless it was interrupted; then it returns the
// reason that wait gave.
func (p *Publisher) pause(c *call, next time.Time) error {
	recovered := p.recovery.Next()
	if first := time.Now().Add(wait.Least); first.Before(next) {
		if reason := p.wait(c.ctx, first, c.woken, nil); reason != p.late { //nolint:errorlint // this one
			return reason
		}
	}
	return p.wait(c.ctx, next, c.woken, recovered)
}

// wait returns nil when ready has a value. If it ends earlier, it returns the reason: the timeout
// at until, or the end of ctx or of the Publisher. If early is closed, that counts as a timeout,
// too.
func (p *Publisher) wait(ctx context.Context, until time.Time, ready, early <-chan struct{}) error {
	var late <-chan time.Time
	if !until.IsZero() {
		t := p.timers.Get().(*time.Timer)
		defer p.timers.Put(t)
		defer t.Stop()
		t.Reset(time.Until(until))
		late = t.C
	}
	select {
	case <-ready:
		return nil
	case <-late:
		return p.late
	case <-early:
		return p.late
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done.Done():
		return context.Cause(p.done)
	}
}

// deadline returns when a call that starts at the given time times out, or zero if it never does.
func (p *Publisher) deadline(begins time.Time) (until time.Time) {
	if p.timeout > 0 {
		until = begins.Add(p.timeout)
	}
	return until
}

// store tries to store the messages of c. Until c times out, it retries the failed messages that
// another try may store. After an unknown outcome, it starts no try later than the backend's
// OnceWindow after began.
func (p *Publisher) store(c *call, began time.Time) error {
	err := p.try(c, began)
	if err == nil {
		return nil
	}
	o, delay := newOutcome(c.msgs), p.newBackoff()
	for o.record(err) {
		next := time.Now().Add(delay())
		forgotten := !o.certain() && next.After(began.Add(p.limits.OnceWindow))
		if forgotten || !c.until.IsZero() && next.After(c.until) {
			break
		}
		p.rest(c, o.certain())
		if reason := p.pause(c, next); reason != p.late { //nolint:errorlint // this one
			o.cutOff(cmp.Or(reason, ErrDropped))
			break
		}
		c.msgs = o.waiting()
		err = p.try(c, time.Now())
	}
	return o.error()
}

// Close refuses later calls and waits for the calls under way. When ctx is done, Close ends them
// and returns the cause.
func (p *Publisher) Close(ctx context.Context) error {
	var err error
	idle := p.close()
	select {
	case <-idle:
	case <-ctx.Done():
		select {
		case <-idle: // ctx is done, too, but no calls are left
		default:
			err = context.Cause(ctx)
		}
	}
	p.stop(backend.ErrClosed)
	p.cut()
	<-idle
	p.running.Wait()
	return err
}
