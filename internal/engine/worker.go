package engine

import (
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
	ended := false
	defer func() {
		if ended {
			return
		}
		if s.afterRun(h, &observer.PanicError{Stack: debug.Stack()}, time.Now()) {
			s.ack(h)
		}
		s.workers.Go(s.worker)
	}()
	for h = s.desk.take(); h != nil; {
		h = s.turn(h)
	}
	ended = true
}

// turn runs the handler for h, does what follows, and takes what is to be run next.
func (s *Subscription) turn(h *Hold) *Hold {
	if s.Mode == OnReceive {
		if !s.confirm(h) {
			return s.desk.take()
		}
		s.desk.mu.Lock()
		s.desk.begin(h, time.Now())
		s.desk.mu.Unlock()
	}
	err := s.invoke(h)
	now := time.Now()
	if err == nil && s.Mode == OnSuccess && s.engine.tell.now.Handled == nil {
		h.ctx.finish()
		if next, ok := s.desk.relieve(h, now); ok {
			return s.next(h, next)
		}
	}
	switch acknowledge := s.afterRun(h, err, now); {
	case acknowledge && s.Mode == OnSuccess:
		return s.next(h, s.desk.exchange(h, time.Now())) // what an observer took is not the next run's
	case acknowledge:
		s.ack(h)
	}
	return s.desk.take()
}

// next acknowledges what was run and returns what is to be run next, if that is
// known. What is acknowledged goes out at once if nothing is left to start.
func (s *Subscription) next(h, next *Hold) *Hold {
	s.acks.Add(h)
	if next == nil {
		s.acks.Flush()
		next = s.desk.take()
	}
	return next
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

// afterRun decides what follows a run that has ended, and does it, but for an
// acknowledgement: then it returns true.
func (s *Subscription) afterRun(h *Hold, err error, now time.Time) (acknowledge bool) {
	took := time.Duration(s.moment(now) - h.began)
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
		return false
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
	if v.outcome == observer.Acknowledge {
		return true
	}
	s.carryOut(h, v, err)
	return false
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
