// Package publish turns the messages of many callers into few large writes.
package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
)

// Options of a Publisher.
type Options struct {
	Timeout         time.Duration // bounds one call, with all its tries; 0: none
	MaxPending      int           // bounds the messages of all calls under way; 0: no bound
	MaxPendingBytes int           // bounds the bytes of these messages; 0: no bound
	WhenFull        WhenFull

	// NewBackoff returns the waits between the tries of one call.
	NewBackoff func() *backoff.ExponentialBackOff
}

// A Publisher stores messages. Its methods are safe for concurrent use.
//
// It has a slot for each concurrent write, see backend.Limits.Publishers. A caller that finds
// a free slot writes its messages itself. Otherwise its call waits in a queue. A goroutine
// takes one slot, writes the calls of the queue together, and ends when the queue is empty.
type Publisher struct {
	writer
	timeout    time.Duration
	newBackoff func() *backoff.ExponentialBackOff
	admission  admission
	queue      queue
	timers     sync.Pool // not global, because a timer belongs to one synctest bubble
	calls      sync.Pool
}

// New returns a Publisher that writes to b.
func New(b backend.Backend, o Options) *Publisher {
	p := &Publisher{timeout: o.Timeout, newBackoff: o.NewBackoff}
	p.writer = newWriter(b, o.Timeout)
	p.admission = admission{maxMessages: o.MaxPending, maxBytes: o.MaxPendingBytes, whenFull: o.WhenFull}
	p.queue.init(p)
	p.calls.New = func() any { return &call{written: make(chan struct{}, 1)} }
	p.timers.New = func() any { return time.NewTimer(time.Hour) }
	return p
}

// Publish stores msgs. The error is nil or a BatchError with one entry for each message.
// After Publish has returned, msgs are no longer used, with one exception. If the error of a
// message matches ErrUnknownOutcome, its headers may still be read.
func (p *Publisher) Publish(ctx context.Context, msgs []*backend.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return all(len(msgs), notSent(err))
	}
	began, size := time.Now(), sizeOf(msgs)
	until := p.deadline(began)
	t, err := p.enter(ctx, until, size)
	if err != nil {
		return all(len(msgs), err)
	}
	defer p.admission.leave(size, t)
	return p.store(ctx, msgs, began, until, t)
}

// enter waits until the admission has room for a call of size s.
func (p *Publisher) enter(ctx context.Context, until time.Time, s size) (*droppable, error) {
	e, t, err := p.admission.ask(s)
	if e == nil {
		return t, err
	}
	err = p.wait(ctx, until, e.in, nil)
	switch {
	case err == nil, !p.admission.giveUp(e): // the call has entered, perhaps just now
		return nil, nil
	case err == p.late: //nolint:errorlint // this one
		return nil, notSent(fmt.Errorf("%w %w", ErrBackpressure, err))
	}
	return nil, notSent(err)
}

// wait returns nil when ready has a value or is closed. If it ends earlier, it returns the
// reason: ErrDropped, the timeout at until, or the end of ctx or of the Publisher.
func (p *Publisher) wait(ctx context.Context, until time.Time, ready, dropped <-chan struct{}) error {
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
	case <-dropped:
		return ErrDropped
	case <-late:
		return p.late
	case <-ctx.Done():
		return ctx.Err()
	case <-p.done.Done():
		return context.Cause(p.done)
	}
}

// deadline returns when a call that begins at the given time times out; zero: never.
func (p *Publisher) deadline(begins time.Time) (until time.Time) {
	if p.timeout > 0 {
		until = begins.Add(p.timeout)
	}
	return until
}

// store tries to store msgs. Before until, it tries the failed messages again that another
// try may store. After an unknown outcome it begins no try later than the backend's
// OnceWindow after began.
func (p *Publisher) store(ctx context.Context, msgs []*backend.Message, began, until time.Time, t *droppable) error {
	err := p.try(ctx, msgs, until, t)
	if err == nil {
		return nil
	}
	o, waits := newOutcome(msgs), p.newBackoff()
	for o.note(err) {
		next := time.Now().Add(waits.NextBackOff())
		forgotten := !o.certain() && next.After(began.Add(p.limits.OnceWindow))
		if forgotten || !until.IsZero() && next.After(until) {
			break
		}
		if t != nil && o.certain() {
			p.admission.again(t)
		}
		if reason := p.wait(ctx, next, nil, t.lost()); reason != p.late { //nolint:errorlint // this one
			o.cutOff(reason)
			break
		}
		err = p.try(ctx, o.waiting(), until, t)
	}
	return o.error()
}

// try makes one try to store msgs. If a slot is free it writes them itself; otherwise they
// go through the queue.
func (p *Publisher) try(ctx context.Context, msgs []*backend.Message, until time.Time, t *droppable) error {
	if p.limits.Publishers < 0 {
		return p.begin(ctx, msgs, t)
	}
	slot, free := p.queue.take()
	if !free {
		return p.share(ctx, msgs, until, t)
	}
	own, cancel := p.bound(ctx, until)
	defer p.queue.release(slot, cancel)
	p.queue.hold(slot, cancel)
	return p.begin(own, msgs, t)
}

// begin writes msgs, and returns the error of the write. If the call of msgs was dropped,
// begin writes nothing and returns an error that matches ErrDropped.
func (p *Publisher) begin(ctx context.Context, msgs []*backend.Message, t *droppable) error {
	if !p.admission.begin(t) {
		return notSent(ErrDropped)
	}
	return p.write(ctx, msgs)
}

// share tries to store msgs through the queue. The goroutine of the queue writes several
// calls together.
func (p *Publisher) share(ctx context.Context, msgs []*backend.Message, until time.Time, t *droppable) error {
	c := p.calls.Get().(*call)
	c.ctx, c.until, c.msgs, c.droppable, c.state = ctx, until, msgs, t, queued
	p.queue.join(c)
	if reason := p.wait(ctx, until, c.written, t.lost()); reason != nil {
		return p.queue.leave(c, reason)
	}
	err := c.err
	c.ctx, c.msgs, c.droppable, c.err = nil, nil, nil, nil
	p.calls.Put(c)
	return err
}

// Close refuses later calls and waits for the calls under way. When ctx is done, Close ends
// them and returns the cause.
func (p *Publisher) Close(ctx context.Context) error {
	var err error
	idle := p.admission.close()
	select {
	case <-idle:
	case <-ctx.Done():
		select {
		case <-idle: // ctx is done too, but no call is left
		default:
			err = context.Cause(ctx)
		}
	}
	p.stop(backend.ErrClosed)
	p.queue.stop()
	<-idle
	p.queue.serving.Wait()
	return err
}
