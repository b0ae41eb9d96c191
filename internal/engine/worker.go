package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

// A worker is a goroutine that runs handlers.
type worker struct {
	*ledger.Worker
	sub   *Subscription
	runs  []Run    // its slice
	kinds []string // the types of the events of runs; nil if no hook wants them
	now   int      // the index of the run whose handler is being called
	all   bool     // the handler is being called for all runs, as a batch
}

// work runs handlers until the ledger tells the worker to end. If a handler or a hook of the
// observer ends the goroutine, another worker replaces this one.
func (s *Subscription) work() {
	w := &worker{Worker: s.ledger.NewWorker(), sub: s, now: -1}
	ended := false
	defer func() {
		if !ended {
			s.ledger.lock()
			s.ledger.Gone(w.Worker)
			s.ledger.unlock()
		}
	}()
	defer func() {
		if !ended {
			w.abort()
		}
	}()
	for w.take() {
		if s.Batch.Handle != nil {
			w.handleBatch()
		} else {
			w.handleEach()
		}
	}
	ended = true
}

// take waits for a slice. It returns false if the worker must end.
func (w *worker) take() bool {
	b := &w.sub.ledger
	for w.runs = nil; ; <-w.Wake {
		if stay := w.takeNow(b); !stay || len(w.runs) > 0 {
			return stay
		}
	}
}

func (w *worker) takeNow(b *lockedLedger) (stay bool) {
	b.lock()
	defer b.unlock() // even after a panic, which would otherwise deadlock the whole subscription
	hs, stay := b.Take(w.Worker)
	if len(hs) > 0 {
		w.runs, w.kinds = w.sub.newRuns(hs), w.sub.kinds(hs)
	}
	return stay
}

// abort fails the runs whose handler has ended the goroutine.
func (w *worker) abort() {
	failure := &observer.PanicError{Stack: debug.Stack()}
	for i := range w.runs {
		if w.all || i == w.now {
			w.afterRun(i, failure, w.sub.now())
		}
	}
}

// handleEach calls the handler for each run of the slice, until one fails or the first lease of the
// slice expires. The worker then takes its next slice, and the ledger takes back the Holds that
// haven't started. The ledger acknowledges the Holds of successful runs when it collects their
// results.
func (w *worker) handleEach() {
	s := w.sub
	for now := s.now(); now < w.Until; {
		i, ok := w.Begin(now)
		if !ok {
			return
		}
		r := &w.runs[i]
		if s.Mode == OnReceive {
			if !w.confirm(r) {
				return
			}
			now = s.now()
			w.Restart(i, now)
		}
		r.begin(now)
		w.now = i
		err := w.invoke(i)
		now = s.now()
		if err != nil || s.notifier.now.Handled != nil {
			w.afterRun(i, err, now)
			return
		}
		if s.Mode != Manual {
			r.finish()
		}
		w.now = -1
		w.End(i, now)
		w.Succeeded(i + 1)
	}
}

// kinds returns the types of the events of hs, if a hook is called for each run. The caller holds
// the ledger's lock, because a Hold may be released before the hook is called.
func (s *Subscription) kinds(hs []*Hold) []string {
	if now := &s.notifier.now; now.Started == nil && now.Handled == nil {
		return nil
	}
	kinds := make([]string, len(hs))
	for i, h := range hs {
		kinds[i] = typeOf(&h.Delivery.Message)
	}
	return kinds
}

// about describes run i and its event.
func (w *worker) about(i int) observer.About {
	about := w.runs[i].about()
	if w.kinds != nil {
		about.Type = w.kinds[i]
	}
	return about
}

// started reports that run i is starting.
func (w *worker) started(i int) {
	if hook := w.sub.notifier.now.Started; hook != nil {
		hook(observer.Started{About: w.about(i)})
	}
}

// invoke calls the handler of single events for run i. A panic becomes an error, even a panic of
// the error that the handler returned.
func (w *worker) invoke(i int) (err error) {
	s, r := w.sub, &w.runs[i]
	if err := s.notRun(r); err != nil {
		return err
	}
	w.started(i)
	defer recovered(&err)
	return Inspected(s.Handle(&r.runCtx, r))
}

// handleBatch calls the batch handler for the runs of the slice.
func (w *worker) handleBatch() {
	s := w.sub
	now := s.now()
	if !w.BeginAll(now) {
		return
	}
	runs, places := make([]*Run, 0, len(w.runs)), make([]int, 0, len(w.runs))
	for i := range w.runs {
		r := &w.runs[i]
		if err := s.notRun(r); err != nil {
			w.afterRun(i, err, now)
		} else if s.Mode != OnReceive || w.confirm(r) {
			runs, places = append(runs, r), append(places, i)
		}
	}
	if len(runs) == 0 {
		return
	}
	if s.Mode == OnReceive {
		now = s.now()
		w.RestartAll(now)
	}
	call := runs[0].call
	call.live.Add(int64(len(runs) - len(w.runs)))
	for _, r := range runs {
		r.begin(now)
	}
	if s.Timeout > 0 {
		call.limit(now.Plus(s.Timeout))
	}
	w.all = true
	for _, at := range places {
		w.started(at)
	}
	errs := s.invokeBatch(call, runs, func() {
		now := s.now()
		w.RestartAll(now)
		if s.Timeout > 0 {
			call.limit(now.Plus(s.Timeout))
		}
	})
	call.finish()
	now = s.now()
	for i, at := range places {
		if errs[i] != nil || s.notifier.now.Handled != nil {
			w.afterRun(at, errs[i], now)
		} else {
			w.End(at, now)
			runs[i].finish()
		}
	}
	w.all = false
	w.Succeeded(len(w.runs))
}

// invokeBatch returns the result of each run. A panic of the handler becomes the result of all of
// them.
func (s *Subscription) invokeBatch(call *batchCall, runs []*Run, begins func()) []error {
	errs := make([]error, len(runs))
	if err := guarded(func() error { s.Batch.Handle(&call.runCtx, runs, errs, begins); return nil }); err != nil {
		return slices.Repeat([]error{err}, len(runs))
	}
	for i, err := range errs {
		errs[i] = Inspected(err)
	}
	return errs
}

// confirm acknowledges the event of r before its run, and reports whether it may run. If the broker
// doesn't confirm within the lease, r must not run, because another member may get the event.
func (w *worker) confirm(r *Run) bool {
	s, h := w.sub, r.hold
	s.ledger.lock()
	wait := s.ledger.Confirm(h)
	s.ledger.unlock()
	err := <-wait
	if err == nil {
		return true
	}
	about := r.about()
	s.ledger.lock()
	told := s.ledger.Unrun(w.Worker, h, err)
	s.ledger.unlock()
	if !errors.Is(err, backend.ErrLeaseLost) || errors.Is(err, backend.ErrUnknownOutcome) {
		s.discarded(about, ReasonUnacked, err)
	} else if !told {
		s.notifyLost(h, r, false, err)
	}
	return false
}

// afterRun settles the event of run i, which ended with err, according to the verdict on it. If
// isUnrun(err), no handler ran, so the run isn't counted as failed and the limiter isn't informed
// of it.
func (w *worker) afterRun(i int, err error, now instant) {
	s, r := w.sub, &w.runs[i]
	h, about := r.hold, w.about(i)
	took := w.End(i, now)
	s.ledger.lock()
	facts := s.ledger.Returned(w.Worker, h, r, err, isUnrun(err))
	s.ledger.unlock()
	w.now = -1 // from now on the event is settled, even if a function of the program ends the goroutine
	if facts.Late && err != nil && !isTimeout(err) {
		err = fmt.Errorf("%w: %w", s.timeout, err)
	}
	if p, ok := errors.AsType[*observer.PanicError](err); ok {
		s.notifier.failed(observer.Panic, about, 1, p)
	}
	if isFailure(err) {
		r.failed(err)
	}
	v := verdict{outcome: observer.Hold}
	if !facts.Decided && (s.Mode != Manual || err != nil || facts.Lost) {
		v = s.settle(result{Returned: facts, hold: h, err: err, manual: s.Mode == Manual}, &r.runCtx)
	}
	if s.notifier.now.Handled != nil && !isUnrun(err) { // last, because a hook may end the goroutine
		about.Tag = r.tagged()
		notify(s.notifier.now.Handled, observer.Handled{About: about, Took: took, Err: err, Outcome: v.outcome})
	}
}

// settle decides how to settle the event of a run, and does so. If a function of the policy ends
// the goroutine, the event is retried after a second.
func (s *Subscription) settle(r result, ctx *runCtx) (v verdict) {
	v = verdict{outcome: observer.Retry, after: time.Second}
	defer func() {
		if s.Mode != Manual && ctx != nil {
			ctx.finish()
		}
		consumerOf(r.hold).settler.carryOut(r.hold, v, r.err)
	}()
	v = s.Policy.decide(s, r)
	return v
}

// timedOut settles the event of a run whose timeout has passed and that no longer has a right to
// it. It continues even if the policy ends the goroutine.
func (s *Subscription) timedOut(h *Hold, run any) {
	s.endRun(run, ledger.ErrTimeout)
	if r, ok := run.(*Run); ok {
		r.failed(s.timeout)
	}
	s.ledger.lock()
	facts := ledger.Returned{Lost: h.Lost(), Leaseless: h.Leaseless(), Interrupted: s.ledger.Interrupted()}
	s.ledger.unlock()
	s.settle(result{Returned: facts, hold: h, err: s.timeout, manual: s.Mode == Manual}, nil)
}

func isTimeout(err error) bool {
	_, ok := errors.AsType[*observer.TimeoutError](err)
	return ok
}

// Handlers returns how many handlers may run at the same time now, and how many are running.
func (s *Subscription) Handlers() (now, running int) {
	s.ledger.mu.Lock() // not lock, because there are no effects
	defer s.ledger.mu.Unlock()
	return s.ledger.Concurrency, s.ledger.Stats().Running
}

// Resize changes how many handlers may run at the same time, between Concurrency and
// MaxConcurrency. Growing takes effect at once. Shrinking ends idle workers at once, and surplus
// busy ones after their current slice. Resize returns false and changes nothing if n is outside
// these limits.
func (s *Subscription) Resize(n int) bool {
	return s.resize(func(int, int) (int, bool) { return n, true })
}

// Grow allows one more handler. It returns false at MaxConcurrency.
func (s *Subscription) Grow() bool {
	return s.resize(func(now, _ int) (int, bool) { return now + 1, true })
}

// Shrink ends one idle worker. It returns false at Concurrency, or if all handlers are busy.
func (s *Subscription) Shrink() bool {
	return s.resize(func(now, running int) (int, bool) { return now - 1, running < now })
}

// resize changes the number of handlers to the result of to, which gets the current number and how
// many are running.
func (s *Subscription) resize(to func(now, running int) (int, bool)) bool {
	s.ledger.lock()
	n, ok := to(s.ledger.Concurrency, s.ledger.Stats().Running)
	if ok = ok && n >= s.Concurrency && n <= s.MaxConcurrency; ok && n != s.ledger.Concurrency {
		s.ledger.Resize(n)
	}
	s.ledger.unlock()
	s.reportLedger()
	return ok
}

// Range returns the range that Resize accepts as a text, such as "1 to 8".
func (c *Config) Range() string { return fmt.Sprintf("%d to %d", c.Concurrency, c.MaxConcurrency) }
