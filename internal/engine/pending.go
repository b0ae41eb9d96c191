package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// pending bounds what waits to be published, in events and in bytes.
type pending struct {
	maxEvents, maxBytes int // 0: no bound
	reject              bool

	mu            sync.Mutex
	events, bytes int
	closed        bool
	waiting       int
	changed       chan struct{} // closed and replaced when something has left and somebody waits
}

func (p *pending) init(o Options) {
	p.maxEvents, p.maxBytes, p.reject = o.MaxPending, o.MaxPendingBytes, o.RejectWhenFull
	p.changed = make(chan struct{})
}

// enter waits for room. A call that is larger than the bounds goes alone. waited
// is since when it waits; zero: it did not have to.
func (p *pending) enter(ctx, done context.Context, timeout time.Duration, events, bytes int) (waited time.Time, err error) {
	changed, err := p.tryEnter(events, bytes)
	if changed == nil {
		return waited, err
	}
	return p.await(ctx, done, timeout, changed, events, bytes)
}

// await is enter where there is no room before something has changed.
func (p *pending) await(ctx, done context.Context, timeout time.Duration, changed <-chan struct{}, events, bytes int) (since time.Time, err error) {
	since = time.Now()
	var late <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			err = notSent(ctx.Err())
		case <-late:
			err = notSent(fmt.Errorf("%w for %v: %w", ErrBackpressure, timeout, context.DeadlineExceeded))
		case <-done.Done():
			err = context.Cause(done)
		}
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if err != nil {
			return since, err
		}
		if changed, err = p.tryEnter(events, bytes); changed == nil {
			return since, err
		}
	}
}

// tryEnter counts a call in, or says what to wait for.
func (p *pending) tryEnter(events, bytes int) (<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.maxEvents > 0 && p.events+events > p.maxEvents || p.maxBytes > 0 && p.bytes+bytes > p.maxBytes
	switch {
	case p.closed:
		return nil, backend.ErrClosed
	case !full || p.events == 0:
		p.events += events
		p.bytes += bytes
		return nil, nil
	case p.reject:
		return nil, notSent(ErrBackpressure)
	}
	p.waiting++
	return p.changed, nil
}

func (p *pending) leave(events, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events -= events
	p.bytes -= bytes
	if p.waiting > 0 || p.closed {
		p.signal()
	}
}

func (p *pending) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pending) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.signal()
}

// wait returns when every call has left, or ctx is done.
func (p *pending) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		n, changed := p.events, p.changed
		p.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
