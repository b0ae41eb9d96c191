package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
)

// A publisher is the one writer of a bus: concurrent calls, of any topics, share
// calls to the backend. What was certainly not stored it repeats, within the
// time its caller has; an unknown outcome only where Once makes that safe.
//
// Who comes when nobody writes, writes itself, if the backend returns promptly
// when it is told to: a hand-over to a goroutine and back costs more than the rest
// of a call (docs/PERFORMANCE.md). One goroutine writes for those who come
// meanwhile. Where the backend waits for nothing everybody writes, at once, and the
// one writer has only what is repeated.
type publisher struct {
	backend   backend.Backend
	limits    backend.Limits
	prompt    bool
	immediate bool
	timeout   time.Duration // of one call; 0: none
	pending   pending
	queue     *batch.Group[*call]
	calls     sync.Pool         // not of the package: a call's channel and timer belong to its bus's synctest bubble
	messages  []backend.Message // of the flush under way, reused by the next
	pointers  []*backend.Message
	payloads  arena
	errs      []error
	calling   sharedCtx // for the backend
	owns      sharedCtx // the same, of callers that write themselves
	done      context.Context
	stop      context.CancelCauseFunc // fails what waits
}

const (
	callsPerFlush    = 1024
	messagesPerWrite = 1000
	bytesPerWrite    = 8 << 20
)

func newPublisher(b backend.Backend, o Options) *publisher {
	p := &publisher{backend: b, limits: backend.LimitsOf(b), timeout: o.PublishTimeout}
	if l := p.limits; l.Self == b { // not what it wraps
		p.prompt, p.immediate = l.Prompt, l.Immediate
	}
	p.pending.init(o)
	p.calls.New = func() any { return &call{ended: make(chan struct{}, 1)} }
	p.queue = batch.New(callsPerFlush, 0, p.flush)
	p.done, p.stop = context.WithCancelCause(context.Background())
	return p
}

// publish stores msgs. The error is nil or a BatchError as long as msgs. After
// it has returned nothing of msgs is used any more, unless an error of it
// matches ErrUnknownOutcome: headers may then still be read.
func (p *publisher) publish(ctx context.Context, msgs []*backend.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return all(len(msgs), notSent(err))
	}
	bytes := 0
	for _, m := range msgs {
		bytes += m.Size()
	}
	since, err := p.pending.enter(ctx, p.done, p.timeout, len(msgs), bytes)
	if err != nil {
		return all(len(msgs), err)
	}
	defer p.pending.leave(len(msgs), bytes)
	if p.immediate && p.portion(msgs) == len(msgs) {
		return p.storeNow(ctx, msgs, since)
	}
	return p.store(ctx, p.newCall(msgs, since))
}

// storeNow stores msgs beside other callers. What fails is a call of which that
// was the first try.
func (p *publisher) storeNow(ctx context.Context, msgs []*backend.Message, since time.Time) error {
	err := p.backend.Publish(ctx, msgs)
	if err == nil {
		return nil
	}
	c := p.newCall(msgs, since)
	errs := make([]error, len(msgs))
	for i := range errs {
		errs[i] = backend.ErrorAt(err, i)
	}
	c.writing = true
	p.conclude(c, msgs, errs)
	return p.await(ctx, c)
}

// store stores the messages of c: here, if nobody writes, or with what others
// want stored.
func (p *publisher) store(ctx context.Context, c *call) error {
	if p.prompt {
		c.own = ctx
	}
	if !p.prompt || !p.queue.Run(c) {
		c.own = nil
		p.queue.Add(c)
	}
	return p.await(ctx, c)
}

// newCall returns the call of msgs, whose time runs since a moment; zero: now.
func (p *publisher) newCall(msgs []*backend.Message, since time.Time) *call {
	c := p.calls.Get().(*call)
	c.msgs, c.until, c.again = msgs, time.Time{}, nil
	if p.timeout > 0 {
		if since.IsZero() {
			since = time.Now()
		}
		c.until = since.Add(p.timeout)
	}
	c.errs = append(c.errs[:0], make([]error, len(msgs))...)
	c.states = append(c.states[:0], make([]state, len(msgs))...)
	return c
}

// await waits for the end of c, or of the caller's patience.
func (p *publisher) await(ctx context.Context, c *call) error {
	reason := p.awaitEnd(ctx, c)
	if reason != nil && c.leave() {
		return c.outcome(reason)
	}
	return p.recycle(c)
}

// awaitEnd returns nil when c has ended, or why its caller leaves. It is done
// with the timer of c then, as the next call may get both.
func (p *publisher) awaitEnd(ctx context.Context, c *call) (reason error) {
	select {
	case <-c.ended:
		return nil
	default:
	}
	var late <-chan time.Time
	if p.timeout > 0 {
		wait := time.Until(c.until)
		if c.timer == nil {
			c.timer = time.NewTimer(wait)
		} else {
			c.timer.Reset(wait)
		}
		late = c.timer.C
		defer c.timer.Stop()
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late:
		return fmt.Errorf("after %v: %w", p.timeout, context.DeadlineExceeded)
	case <-p.done.Done():
		return context.Cause(p.done)
	}
}

// recycle returns what became of a call that has ended, and keeps its memory.
func (p *publisher) recycle(c *call) error {
	var err error
	if backend.AsBatchError(c.errs) != nil {
		err = backend.BatchError(append([]error(nil), c.errs...))
	}
	c.msgs = nil
	clear(c.errs)
	p.calls.Put(c)
	return err
}

func notSent(err error) error { return fmt.Errorf("%w: not sent: %w", backend.ErrUnavailable, err) }
func unknown(err error) error { return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err) }

func all(n int, err error) error {
	errs := make(backend.BatchError, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// flush writes what the calls still want stored. It is the only writer.
func (p *publisher) flush(batch []*call) {
	p.messages, p.pointers = p.messages[:0], p.pointers[:0]
	for _, c := range batch {
		p.gather(c)
	}
	for i := range p.messages {
		p.pointers = append(p.pointers, &p.messages[i])
	}
	written, errs := p.pointers, p.write(batch[0].own)
	for _, c := range batch {
		n := p.conclude(c, written, errs)
		written, errs = written[n:], errs[n:]
	}
	clear(p.messages)
	clear(p.pointers)
	clear(p.errs)
	p.payloads.empty()
}

// gather copies what is to be written: messages, since a backend fills them in,
// and payloads, since a caller may leave and change them; but not one that writes
// itself.
func (p *publisher) gather(c *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = !c.left
	if c.left {
		return
	}
	for i, m := range c.msgs {
		switch {
		case c.states[i] != waiting:
		case c.own != nil:
			p.messages = append(p.messages, *m)
		default:
			p.copyMessage(m)
		}
	}
}

func (p *publisher) copyMessage(m *backend.Message) {
	n := len(p.messages)
	p.messages = append(p.messages, *m)
	p.messages[n].Payload = p.payloads.copy(m.Payload)
}

// write stores p.pointers in as few calls as the limits allow and returns one
// error for each. With own, the context of a caller that writes itself, it ends
// with that.
func (p *publisher) write(own context.Context) []error {
	p.errs = p.errs[:0]
	for rest := p.pointers; len(rest) > 0; {
		n := p.portion(rest)
		err := p.writeSome(own, rest[:n:n])
		for i := range n {
			p.errs = append(p.errs, backend.ErrorAt(err, i))
		}
		rest = rest[n:]
	}
	return p.errs
}

func (p *publisher) writeSome(own context.Context, msgs []*backend.Message) error {
	if own == nil {
		return p.backend.Publish(p.calling.get(p.done, p.timeout), msgs)
	}
	if err := own.Err(); err != nil {
		return notSent(err)
	}
	timeout := p.timeout - p.timeout/8 // as it may last an eighth longer
	if own.Done() == nil {
		return p.backend.Publish(p.owns.get(p.done, timeout), msgs)
	}
	ctx, release := p.owns.endingWith(own, p.done, timeout)
	defer release()
	return p.backend.Publish(ctx, msgs)
}

// portion is how many of msgs fit in one call.
func (p *publisher) portion(msgs []*backend.Message) int {
	most := messagesPerWrite
	if p.limits.Batch > 0 {
		most = min(most, p.limits.Batch)
	}
	bytes := 0
	for i, m := range msgs {
		if bytes += m.Size(); i > 0 && (i == most || bytes > bytesPerWrite) {
			return i
		}
	}
	return len(msgs)
}

// conclude tells c what became of its messages, which are the first of those
// written, and returns how many they were. What may be repeated goes back into
// the queue after a while.
func (p *publisher) conclude(c *call, written []*backend.Message, errs []error) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.writing {
		return 0
	}
	c.writing = false
	repeat := false
	for i, m := range c.msgs {
		if c.states[i] != waiting {
			continue
		}
		err, w := p.because(c, errs[n]), written[n]
		n++
		c.errs[i] = outcomeAfter(c.errs[i], err)
		switch {
		case err == nil:
			c.states[i] = stored
			if !c.left {
				m.Position, m.Duplicate = w.Position, w.Duplicate
			}
		case repeatable(err, m.Once):
			repeat = true
		default:
			c.states[i] = failed
		}
	}
	c.own = nil
	if !c.left && !(repeat && c.keepsOrder() && p.repeat(c)) {
		c.ended <- struct{}{}
	}
	return n
}

// because adds to the error of a caller that writes itself why it was cut off, if
// it was.
func (p *publisher) because(c *call, err error) error {
	if err == nil || c.own == nil {
		return err
	}
	reason := c.own.Err()
	if reason == nil && p.done.Err() != nil {
		reason = context.Cause(p.done)
	}
	switch {
	case reason == nil || errors.Is(err, reason):
		return err
	case backend.NotStored(err):
		return notSent(fmt.Errorf("%w, last: %w", reason, err))
	}
	return unknown(fmt.Errorf("%w: %w", reason, err))
}

// repeat puts c back into the queue after a pause, if its time allows.
func (p *publisher) repeat(c *call) bool {
	if c.again == nil {
		c.again = newBackoff()
	}
	wait := c.again.NextBackOff()
	if !c.until.IsZero() && time.Now().Add(wait).After(c.until) {
		return false
	}
	time.AfterFunc(wait, func() { p.queue.Add(c) })
	return true
}

// repeatable reports whether writing a message once more is safe and may help.
func repeatable(err error, once bool) bool {
	if backend.NotStored(err) {
		return errors.Is(err, backend.ErrUnavailable)
	}
	return once
}

// newBackoff is how the bus waits for a broker: 100 ms doubling to 5 s, each
// between half and one and a half of that.
func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithRandomizationFactor(0.5),
		backoff.WithMaxElapsedTime(0),
	)
}

// close fails every later call and, once ctx is done, what still waits.
func (p *publisher) close(ctx context.Context) error {
	p.pending.close()
	err := p.pending.wait(ctx)
	p.stop(backend.ErrClosed)
	p.queue.Wait()
	p.calling.end()
	p.owns.end()
	return err
}
