package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// worker runs handlers until the scheduler is closed. A handler, or an observer's
// hook, that ends its goroutine ends the worker: another one takes its place.
func (s *Subscription) worker() {
	var h *Hold
	ended := false
	defer func() {
		if !ended {
			s.workers.Go(s.worker)
		}
	}()
	defer func() {
		if !ended && s.sched.works(h) {
			s.afterRun(h, &observer.PanicError{Stack: debug.Stack()}, time.Now())
		}
	}()
	for h = s.sched.take(); h != nil; {
		h = s.turn(h)
	}
	ended = true
}

// works reports whether the handler of h has not returned.
func (d *scheduler) works(h *Hold) bool {
	d.mu.Lock()
	defer d.unlock()
	return h.working
}

// turn runs the handler for h, settles h, and takes the next Hold to run.
func (s *Subscription) turn(h *Hold) *Hold {
	if s.Mode == OnReceive && !s.confirm(h) {
		return s.sched.take()
	}
	err := s.invoke(h)
	now := time.Now()
	if err == nil && s.Mode == OnSuccess && s.engine.tell.now.Handled == nil {
		h.ctx.finish()
		if next, ok := s.sched.succeeded(h, now); ok {
			return s.next(h, next)
		}
	}
	s.afterRun(h, err, now)
	return s.sched.take()
}

// next acknowledges h, which was run, and returns next or waits for a Hold to run. If
// none is ready the acknowledgement goes out at once.
func (s *Subscription) next(h, next *Hold) *Hold {
	s.acks.Add(h)
	if next == nil {
		s.acks.Flush()
		next = s.sched.take()
	}
	return next
}

// invoke runs the handler. It is the only place that does. A panic becomes an
// error; a handler that ends its goroutine takes the worker with it, whose
// deferred calls then settle the message.
func (s *Subscription) invoke(h *Hold) (err error) {
	if err := s.notRun(h); err != nil {
		return err
	}
	defer recovered(&err)
	return s.Handle(h.ctx, h)
}

// recovered turns a panic into a PanicError.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &observer.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// confirm acknowledges h before it runs. If that is not confirmed within the
// lease it must not run: it may come to another member.
func (s *Subscription) confirm(h *Hold) bool {
	s.acks.Add(h)
	<-h.wait.ended
	err := h.wait.result
	if err == nil {
		s.sched.confirmed(h)
		return true
	}
	s.sched.unrun(h)
	if errors.Is(err, backend.ErrLeaseLost) && !errors.Is(err, backend.ErrUnknownOutcome) {
		s.tellLost(h, false, err)
	} else {
		s.discarded(h, ReasonUnacked, err)
	}
	s.sched.release([]*Hold{h}, err)
	return false
}

// confirmed starts the clock of the run of h, which is acknowledged.
func (d *scheduler) confirmed(h *Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.begin(h, time.Now())
}

// unrun notes that h, taken to be run, will not be.
func (d *scheduler) unrun(h *Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.ran(h, 0, errLeaseLost(nil))
	d.decided(h)
	d.tellRoom()
	d.tellQuiet()
}

// afterRun settles h by the verdict of a run that has ended.
func (s *Subscription) afterRun(h *Hold, err error, now time.Time) {
	took := time.Duration(s.moment(now) - h.began)
	found := s.sched.returned(h, took, err)
	if found.late && err != nil && !isTimeout(err) {
		err = fmt.Errorf("%w: %w", s.timeout, err)
	}
	if p, ok := errors.AsType[*observer.PanicError](err); ok {
		s.engine.tell.failed(observer.Panic, h.about(), 1, p)
	}
	if err != nil {
		s.counts.failures.Add(1)
	}
	about, v := h.about(), verdict{outcome: observer.Hold}
	if !found.decided && (s.Mode != Manual || err != nil || found.lost) {
		v = s.Policy.decide(run{
			hold: h, err: err, lost: found.lost, manual: s.Mode == Manual,
			interrupted: found.interrupted, settled: s.Mode == OnReceive,
		})
		h.ctx.finish()
		s.carryOut(h, v, err)
	}
	if s.engine.tell.now.Handled != nil { // last, as the program's hook may end the goroutine
		tell(s.engine.tell.now.Handled, observer.Handled{About: about, Took: took, Err: err, Outcome: v.outcome})
	}
}

func isTimeout(err error) bool {
	_, ok := errors.AsType[*observer.TimeoutError](err)
	return ok
}

func (s *Subscription) discarded(h *Hold, reason string, err error) {
	s.counts.discarded.Add(1)
	tell(s.engine.tell.later.Discarded, observer.Discarded{About: h.about(), Reason: reason, Err: err})
}
