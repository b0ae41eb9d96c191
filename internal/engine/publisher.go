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

// A publisher writes for a bus: concurrent calls, of any topics, share
// calls to the backend. What was certainly not stored it repeats, within the
// time its caller has; an unknown outcome only where Once makes that safe.
//
// Several of its calls to the backend may be under way: while the broker works on one
// there is time to make another. Who comes when nobody waits, writes itself, if the
// backend returns promptly when it is told to: a hand-over to a goroutine and back
// costs more than the rest of a call (docs/PERFORMANCE.md). Goroutines write for
// those who come meanwhile. Where the backend waits for nothing everybody writes,
// at once, and the writers have only what is large or repeated; but nobody overtakes
// what its caller has left to them.
type publisher struct {
	backend   backend.Backend
	limits    backend.Limits
	prompt    bool
	immediate bool
	timeout   time.Duration // of one call; 0: none
	pending   pending
	waiters   waiters
	queue     *batch.Group[*call]
	calls     sync.Pool    // not of the package: a call's channel belongs to its bus's synctest bubble
	writers   chan *writer // those that are free
	done      context.Context
	stop      context.CancelCauseFunc // fails what waits
}

const (
	writersPerBus    = 4
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
	p.waiters.timeout = p.timeout
	p.calls.New = func() any { return &call{woken: make(chan struct{}, 1)} }
	p.queue = batch.NewAbreast(writersPerBus, callsPerFlush, 0, p.flush)
	p.done, p.stop = context.WithCancelCause(context.Background())
	p.writers = make(chan *writer, writersPerBus)
	for range writersPerBus {
		p.writers <- &writer{publisher: p}
	}
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
	if p.immediate && !p.queue.Fenced() && p.portion(msgs) == len(msgs) {
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
	c.msgs, c.until, c.again, c.ended, c.reason = msgs, time.Time{}, nil, false, nil
	if p.timeout > 0 {
		if since.IsZero() {
			since = time.Now()
		}
		c.until = since.Add(p.timeout)
	}
	c.errs = append(c.errs[:0], make([]error, len(msgs))...)
	c.states = append(c.states[:0], make([]state, len(msgs))...)
	c.refused = append(c.refused[:0], make([]bool, len(msgs))...)
	return c
}

// await waits for the end of c, or until its caller leaves.
func (p *publisher) await(ctx context.Context, c *call) error {
	var reason error
	select {
	case <-c.woken:
	default:
		p.waiters.enter(c)
		reason = c.wait(ctx)
		p.waiters.leave(c)
	}
	if left, err := c.leave(reason); left {
		p.queue.Fence() // what this caller publishes next is not to overtake what it leaves
		return err
	}
	return p.recycle(c)
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

// flush writes what the calls still want stored.
func (p *publisher) flush(batch []*call) {
	w := <-p.writers
	defer func() { p.writers <- w }()
	w.flush(batch)
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
		c.errs[i], c.refused[i] = outcomeAfter(c.errs[i], err), err != nil && backend.NotStored(err)
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
		c.end()
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
	time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.left && c.reason == nil { // or the queue may have ended, with the bus
			p.queue.Add(c)
		}
	})
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
	p.waiters.end(backend.ErrClosed)
	p.queue.Wait()
	for range writersPerBus {
		w := <-p.writers
		w.end()
		p.writers <- w
	}
	return err
}
