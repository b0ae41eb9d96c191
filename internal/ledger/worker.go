package ledger

import (
	"slices"
	"sync/atomic"
	"time"
)

// A Worker is a goroutine that runs handlers. It takes a slice of Holds, about a millisecond of
// work, and begins one after another without the caller's lock. The ledger may take back those that
// have not begun. A batch is a slice that a single run handles.
type Worker struct {
	Wake chan struct{} // receives a value when the Worker is to call Take again

	next  atomic.Int32 // the index of the next Hold to begin
	done  atomic.Int32 // how many have ended
	began atomic.Int64 // when the current run began; zero: no handler runs

	Until Instant // the first of the leases of the slice ends then; valid on the goroutine of the Worker

	times     []span // of the runs of the slice; of the Worker
	holds     []*Hold
	reuse     []*Hold // memory for the next slice
	lanes     []*lane // memory for takeSlice
	counted   int     // Holds whose result the ledger has recorded
	late      Instant // the began of the run whose timeout has passed
	stuck     bool
	lostRun   any     // the stuck run
	hangs     []*memo // of the messages of the stuck run
	busyIndex int     // in Ledger.busy
	timeouts  alarm
	overslice alarm
}

// A span is when a run began and ended.
type span struct{ began, ended Instant }

const (
	sliceTime  = time.Millisecond       // the work in a slice
	mostSlice  = 64                     // Holds in a slice
	wakeFor    = 200 * time.Microsecond // the least work for which another worker is woken at once
	wakeAfter  = 50 * time.Microsecond  // when another worker is woken for less
	stealAfter = 10 * time.Millisecond  // when the rest of a slice is taken back
	stuckAfter = 5 * time.Second        // from the timeout of a run until its Hold is taken from it
	leastSpare = 16                     // at least so many workers may run in place of stuck ones
	stolen     = 1 << 30                // Worker.next after the rest was taken back
)

// NewWorker returns a Worker for a goroutine that an effect Start asks for.
func (l *Ledger) NewWorker() *Worker {
	w := &Worker{Wake: make(chan struct{}, 1)}
	w.timeouts.ring = func(now Instant) { l.watchTimeout(w, now) }
	w.overslice.ring = func(Instant) { l.collect(w); l.steal(w); l.wakeWorker(); l.watchUnclaimed() }
	return w
}

// Begin claims the next Hold of the slice for a run that begins now, and returns its index.
// It returns false if the slice has ended.
func (w *Worker) Begin(now Instant) (i int, ok bool) {
	w.began.Store(0)
	i = int(w.next.Add(1)) - 1
	if i >= len(w.times) {
		return 0, false
	}
	w.Restart(i, now)
	return i, true
}

// Restart records that the run i begins only now.
func (w *Worker) Restart(i int, now Instant) {
	w.times[i].began = now
	w.began.Store(int64(now))
}

// BeginAll is Begin for a batch: it claims all Holds of the slice.
func (w *Worker) BeginAll(now Instant) bool {
	w.began.Store(0)
	if !w.next.CompareAndSwap(0, int32(len(w.times))) {
		return false
	}
	w.RestartAll(now)
	return true
}

// RestartAll records that the run of a batch begins only now.
func (w *Worker) RestartAll(now Instant) {
	for i := range w.times {
		w.times[i].began = now
	}
	w.began.Store(int64(now))
}

// End records when the run i ended, and returns how long it took. Unless Returned was called for
// the run, Succeeded follows.
func (w *Worker) End(i int, now Instant) time.Duration {
	w.began.Store(0)
	w.times[i].ended = now
	return time.Duration(now - w.times[i].began)
}

// Succeeded records that the runs of the first n Holds have succeeded, or Returned was called
// for them.
func (w *Worker) Succeeded(n int) { w.done.Store(int32(n)) }

// Take ends the slice of w and returns its next one. If there is none, w waits for Wake and
// calls Take again. If stay is false, w ends.
func (l *Ledger) Take(w *Worker) (hs []*Hold, stay bool) {
	l.waking = false
	l.endSlice(w)
	if l.closed && !l.finishes() || l.workers > l.Concurrency+l.spare() {
		l.workers--
		l.Out.FlushAcks = true
		l.wakeWorker()
		return nil, false
	}
	if l.Batch.Size > 0 {
		hs = l.takeBatch(w)
	} else {
		hs = l.takeSlice(w)
	}
	if len(hs) == 0 {
		l.idle = append(l.idle, w)
		l.Out.FlushAcks = true
		l.wakeFetchers()
		return nil, true
	}
	w.reuse = hs[:0]
	w.holds, w.counted, w.stuck, w.lostRun = hs, 0, false, nil
	w.Until = hs[0].until
	for _, h := range hs {
		w.Until = min(w.Until, h.until)
	}
	w.times = slices.Grow(w.times[:0], len(hs))[:len(hs)]
	w.done.Store(0)
	w.next.Store(0)
	w.busyIndex = len(l.busy)
	l.busy = append(l.busy, w)
	l.working++
	if l.Timeout > 0 {
		l.ringBy(&w.timeouts, l.Now.Plus(l.Timeout))
	}
	if len(hs) > 1 && l.Batch.Size == 0 {
		l.set(&w.overslice, l.Now.Plus(stealAfter))
	}
	l.wakeWorker()
	l.wakeFetchers()
	l.watchUnclaimed()
	return hs, true
}

// Gone records that the goroutine of w has ended, and another one replaces it.
func (l *Ledger) Gone(w *Worker) {
	l.waking = false
	l.endSlice(w)
	l.workers--
	l.wakeWorker()
}

// endSlice ends the slice of w.
func (l *Ledger) endSlice(w *Worker) {
	if w.holds == nil {
		return
	}
	l.collect(w)
	l.steal(w)
	last := len(l.busy) - 1
	l.busy[w.busyIndex] = l.busy[last]
	l.busy[w.busyIndex].busyIndex = w.busyIndex
	l.busy = l.busy[:last]
	clear(w.reuse[:cap(w.reuse)])
	if w.holds = nil; w.stuck {
		l.stuck--
		for _, m := range w.hangs {
			m.hangs--
		}
		w.hangs = nil
		l.do(Effect{Kind: Unstuck})
	} else {
		l.working--
	}
	l.set(&w.overslice, 0)
}

// spare returns how many workers may run in place of stuck ones.
func (l *Ledger) spare() int { return min(l.stuck, max(l.Concurrency, leastSpare)) }

// countStuck records that a run of h is stuck in w, until w ends it.
func (w *Worker) countStuck(h *Hold) {
	m := h.Source.remember(h)
	m.hangs++
	w.hangs = append(w.hangs, m)
}

// wakeWorker wakes or starts one worker if there is a Hold for it. That worker wakes the next one
// when it takes its Holds.
func (l *Ledger) wakeWorker() {
	if l.closed && !l.finishes() || l.waking || !l.hasWork() {
		return
	}
	if l.working > 0 && l.Batch.Size == 0 && l.wakeNow == 0 && l.littleWork() { // the running workers will take it
		l.ringBy(&l.delayedWake, l.Now.Plus(wakeAfter))
		return
	}
	if last := len(l.idle) - 1; last >= 0 {
		l.Out.Wake = append(l.Out.Wake, l.idle[last])
		l.idle = l.idle[:last]
		l.waking = true
	} else if l.workers < l.Concurrency+l.spare() {
		l.workers++
		l.Out.Start++
		l.waking = true
	}
}

// littleWork reports whether the ready Holds are so little work that waking another worker would
// cost more.
func (l *Ledger) littleWork() bool {
	return l.average > 0 && time.Duration(l.startable())*l.average < wakeFor
}

// wakeDelayed wakes a worker for Holds that the running workers have not taken.
func (l *Ledger) wakeDelayed(Instant) {
	l.wakeNow++
	l.wakeWorker()
	l.wakeNow--
}

// Resize changes Concurrency. Surplus workers end at once if they are idle, and after their slice
// otherwise, so that no run is cut short.
func (l *Ledger) Resize(n int) {
	l.Concurrency = n
	for left := l.workers - n - l.spare(); left > 0 && len(l.idle) > 0; left-- {
		last := len(l.idle) - 1
		l.Out.Wake = append(l.Out.Wake, l.idle[last]) // its Take ends it
		l.idle = l.idle[:last]
	}
	l.wakeWorker()
	l.wakeFetchers()
	l.watchUnclaimed()
}
