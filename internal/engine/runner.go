package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// A runner has the workers of a subscription. They run the handlers.
type runner struct {
	sub     *Subscription
	workers sync.WaitGroup
}

// worker runs handlers until the scheduler is closed. If a handler or a hook of the observer
// ends its goroutine, and so the worker, another worker replaces it.
func (r *runner) worker() {
	var h *Hold
	ended := false
	defer func() {
		if !ended {
			r.workers.Go(r.worker)
		}
	}()
	defer func() {
		if !ended && h.works() {
			r.afterRun(h, &observer.PanicError{Stack: debug.Stack()}, time.Now())
		}
	}()
	for h = r.sub.sched.take(); h != nil; h = r.sub.sched.take() {
		for h != nil { // h is nil while take waits, so that an idle worker keeps no Hold in memory
			h = r.turn(h)
		}
	}
	ended = true
}

// works reports whether the handler of h has not returned yet.
func (h *Hold) works() bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return h.working
}

// turn runs the handler for h and settles h. It returns the next Hold to run, or nil if the
// worker must call take for it.
func (r *runner) turn(h *Hold) *Hold {
	if r.sub.Mode == OnReceive && !r.confirm(h) {
		return nil
	}
	err := r.invoke(h)
	now := time.Now()
	if err == nil && r.sub.Mode == OnSuccess && r.sub.notifier.now.Handled == nil {
		h.ctx.finish()
		if next, ok := r.sub.sched.succeeded(h, now); ok {
			r.sub.settler.acks.Add(h)
			if next == nil {
				r.sub.settler.acks.Flush()
			}
			return next
		}
	}
	r.afterRun(h, err, now)
	return nil
}

// invoke is the only caller of the handler. A panic becomes an error, also a panic of the
// error that the handler returned. If the handler ends its goroutine, the deferred calls of
// worker settle the event.
func (r *runner) invoke(h *Hold) (err error) {
	if err := r.notRun(h); err != nil {
		return err
	}
	defer recovered(&err)
	return Inspected(r.sub.Handle(h.ctx, h))
}

var errNone = errors.New("matches no error")

// Inspected calls the methods Unwrap, Is and As of err and of the errors that it wraps. It
// returns err, or a PanicError if one of them panics, as with a nil pointer in err.
func Inspected(err error) (result error) {
	if err == nil {
		return nil
	}
	defer recovered(&result)
	_ = errors.Is(err, errNone)
	_, _ = errors.AsType[*observer.PanicError](err)
	return err
}

// recovered turns a panic into a PanicError.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &observer.PanicError{Value: v, Stack: debug.Stack()}
	}
}

// confirm acknowledges h before it runs, and reports whether it may run. If the broker does
// not confirm within the lease, h must not run, because another member may get the event.
func (r *runner) confirm(h *Hold) bool {
	r.sub.settler.acks.Add(h)
	err := <-h.wait
	if err == nil {
		r.sub.sched.confirmed(h)
		return true
	}
	told := r.sub.sched.unrun(h)
	if !errors.Is(err, backend.ErrLeaseLost) || errors.Is(err, backend.ErrUnknownOutcome) {
		r.sub.discarded(h, ReasonUnacked, err)
	} else if !told {
		r.sub.tellLost(h, false, err)
	}
	r.sub.sched.release([]*Hold{h}, err)
	return false
}

// confirmed begins the run of h after its acknowledgement.
func (d *scheduler) confirmed(h *Hold) {
	d.mu.Lock()
	defer d.unlock()
	h.begin(time.Now(), d.interrupted)
}

// unrun notes that h will not run, although a worker has taken it. It reports whether the
// lease of h was lost before, which the observer then knows.
func (d *scheduler) unrun(h *Hold) (lost bool) {
	d.mu.Lock()
	defer d.unlock()
	d.ran(h, 0, errLeaseLost(nil))
	h.decided()
	d.tellRoom()
	d.tellQuiet()
	return h.lost
}

// afterRun settles h by the verdict on its run, which has ended with err.
func (r *runner) afterRun(h *Hold, err error, now time.Time) {
	took := time.Duration(r.sub.moment(now) - h.began)
	found := r.sub.sched.returned(h, took, err)
	if found.late && err != nil && !isTimeout(err) {
		err = fmt.Errorf("%w: %w", r.sub.timeout, err)
		found.err = err
	}
	if p, ok := errors.AsType[*observer.PanicError](err); ok {
		r.sub.notifier.failed(observer.Panic, h.about(), 1, p)
	}
	if err != nil && !found.failed && !isUnrun(err) {
		r.sub.counts.failures.Add(1)
	}
	about, v := h.about(), verdict{outcome: observer.Hold}
	if !found.decided && (r.sub.Mode != Manual || err != nil || found.lost) {
		v = r.sub.Policy.decide(found)
		h.ctx.finish()
		r.sub.settler.carryOut(h, v, err)
	}
	if r.sub.notifier.now.Handled != nil && !isUnrun(err) { // last, because a hook may end the goroutine
		tell(r.sub.notifier.now.Handled, observer.Handled{About: about, Took: took, Err: err, Outcome: v.outcome})
	}
}

func isTimeout(err error) bool {
	_, ok := errors.AsType[*observer.TimeoutError](err)
	return ok
}

func (s *Subscription) discarded(h *Hold, reason string, err error) {
	s.counts.discarded.Add(1)
	tell(s.notifier.later.Discarded, observer.Discarded{About: h.about(), Reason: reason, Err: err})
}
