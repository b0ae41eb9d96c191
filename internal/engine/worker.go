package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed41896749/eventbus/observer"
)

// worker runs handlers until the desk is closed. A handler that ends its
// goroutine ends the worker: the next one takes its place.
func (s *Subscription) worker() {
	var h *Hold
	done := false
	defer func() {
		if done {
			return
		}
		s.afterRun(h, &observer.PanicError{Stack: debug.Stack()})
		s.workers.Go(s.worker)
	}()
	for h = s.desk.take(); h != nil; h = s.desk.take() {
		s.run(h)
	}
	done = true
}

// run runs the handler for h and does what follows.
func (s *Subscription) run(h *Hold) {
	if s.Mode == OnReceive && !s.confirm(h) {
		return
	}
	now := time.Now()
	var deadline time.Time
	if s.Timeout > 0 {
		deadline = now.Add(s.Timeout)
	}
	h.ctx.begin(s.base, deadline)
	if !s.desk.begin(h, now, s.Mode == OnReceive) {
		h.ctx.finish()
		s.forget(h)
		return
	}
	s.afterRun(h, s.invoke(h))
}

// confirm acknowledges h before it runs. If that is not confirmed within the
// lease it must not run: it may come to another member.
func (s *Subscription) confirm(h *Hold) bool {
	err := s.ackAndWait(h)
	if err == nil {
		return true
	}
	s.desk.unrun(h)
	s.discarded(h, ReasonUnacked, err)
	s.forget(h)
	return false
}

// begin starts the clock of h's run. It returns false if the lease has been lost
// meanwhile; h then does not count as run.
func (d *desk) begin(h *Hold, now time.Time, acknowledged bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.began = now
	if !h.lost || acknowledged {
		if d.interrupted {
			h.ctx.cancel(context.Canceled, ErrShutdown)
		}
		return true
	}
	d.stopWorking(h)
	return false
}

// afterRun decides what follows a run that has ended.
func (s *Subscription) afterRun(h *Hold, err error) {
	took := time.Since(h.began)
	found := s.desk.returned(h, took, err)
	if found.late && err != nil && !isTimeout(err) {
		err = fmt.Errorf("%w: %w", &observer.TimeoutError{After: s.Timeout}, err)
	}
	if p, ok := errors.AsType[*observer.PanicError](err); ok {
		s.engine.tell.failed(observer.Panic, h.about(), 1, p)
	}
	if err != nil {
		s.counts.failures.Add(1)
	}
	var v verdict
	switch {
	case found.decided, s.Mode == Manual && err == nil && !found.lost:
		s.handled(h, took, err, observer.Hold)
		return
	case s.Mode == Manual && err == nil:
		v = verdict{outcome: observer.Forget}
	default:
		v = s.Policy.decide(run{
			err: err, attempt: h.attempt, lost: found.lost,
			interrupted: found.interrupted, settled: s.Mode == OnReceive,
		})
	}
	h.ctx.finish()
	s.handled(h, took, err, v.outcome)
	s.carryOut(h, v, err)
}

func isTimeout(err error) bool {
	_, ok := errors.AsType[*observer.TimeoutError](err)
	return ok
}

func (s *Subscription) handled(h *Hold, took time.Duration, err error, o observer.Outcome) {
	if s.engine.tell.now.Handled != nil {
		tell(s.engine.tell.now.Handled, observer.Handled{About: h.about(), Took: took, Err: err, Outcome: o})
	}
}

func (s *Subscription) discarded(h *Hold, reason string, err error) {
	s.counts.discarded.Add(1)
	tell(s.engine.tell.later.Discarded, observer.Discarded{About: h.about(), Reason: reason, Err: err})
}
