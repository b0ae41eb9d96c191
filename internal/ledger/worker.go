package ledger

import (
	"slices"
	"sync/atomic"
	"time"
)

// A Worker is a goroutine that runs handlers. It takes a slice of Holds, about a millisecond's
// worth of work, and starts them one after another without the caller's lock. The ledger may take
// back those that haven't started. A batch is a slice that is handled in a single run.
type Worker struct {
	Wake chan struct{} // receives a value when the Worker must call Take again

	next  atomic.Int32 // index of the next Hold to start
	done  atomic.Int32 // how many runs have ended
	began atomic.Int64 // when the current run started; zero if no handler is running

	Until Instant // when the first lease of the slice expires; only for the Worker's own goroutine

	times     []span // of the runs of the slice; used by the Worker's goroutine only
	holds     []*Hold
	reuse     []*Hold // memory for the next slice
	lanes     []*lane // memory for takeSlice
	counted   int     // how many Holds' results the ledger has recorded
	late      Instant // the began of the run whose timeout has passed
	stuck     bool
	lostRun   any     // the stuck run
	hangs     []*memo // the memos of the messages of the stuck run
	busyIndex int     // index in Ledger.busy
	timeouts  alarm
	overslice alarm
}

// A span is the start and the end of a run.
type span struct{ began, ended Instant }

const (
	sliceTime  = time.Millisecond       // how much work a slice holds
	mostSlice  = 64                     // most Holds in a slice
	wakeFor    = 200 * time.Microsecond // the least work for which another worker is woken at once
	wakeAfter  = 50 * time.Microsecond  // after how long another worker is woken for less work than that
	stealAfter = 10 * time.Millisecond  // after how long the rest of a slice is taken back
	stuckAfter = 5 * time.Second        // time from the timeout of a run until its Hold is taken away from it
	leastSpare = 16                     // least limit on the workers that may run in place of stuck ones
	stolen     = 1 << 30                // value of Worker.next after the rest was taken back
)

// NewWorker returns a Worker for a goroutine that a Start effect has requested.
func (l *Ledger) NewWorker() *Worker {
	w := &Worker{Wake: make(chan struct{}, 1)}
	w.timeouts.ring = func(now Instant) { l.watchTimeout(w, now) }
	w.overslice.ring = func(Instant) { l.collect(w); l.steal(w); l.wakeWorker(); l.watchUnclaimed() }
	return w
}

// Begin claims the next Hold of the slice, whose run starts now, and returns its index. It returns
// false if the slice is finished.
func (w *Worker) Begin(now Instant) (i int, ok bool) {
	w.began.Store(0)
	i = int(w.next.Add(1)) - 1
	if i >= len(w.times) {
		return 0, false
	}
	w.Restart(i, now)
	return i, true
}

// Restart records that run i only starts now.
func (w *Worker) Restart(i int, now Instant) {
	w.times[i].began = now
	w.began.Store(int64(now))
}

// BeginAll is like Begin, but claims all Holds of the slice, for a batch.
func (w *Worker) BeginAll(now Instant) bool {
	w.began.Store(0)
	if !w.next.CompareAndSwap(0, int32(len(w.times))) {
		return false
	}
	w.RestartAll(now)
	return true
}

// RestartAll records that the run of a batch only starts now.
func (w *Worker) RestartAll(now Instant) {
	for i := range w.times {
		w.times[i].began = now
	}
	w.began.Store(int64(now))
}

// End records that run i has ended, and returns how long it took. Unless Returned was called for
// the run, call Succeeded next.
func (w *Worker) End(i int, now Instant) time.Duration {
	w.began.Store(0)
	w.times[i].ended = now
	return time.Duration(now - w.times[i].began)
}

// Succeeded records that the first n Holds are done: each of their runs has succeeded or was
// reported to Returned.
func (w *Worker) Succeeded(n int) { w.done.Store(int32(n)) }

// Take finishes the slice of w and returns its next one. If hs is empty and stay is true, w must
// wait for Wake and call Take again. If stay is false, w must end.
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

// Gone records that the goroutine of w has ended and another one replaces it.
func (l *Ledger) Gone(w *Worker) {
	l.waking = false
	l.endSlice(w)
	l.workers--
	l.wakeWorker()
}

// endSlice finishes the slice of w.
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

// countStuck records that a run of h is stuck in w, until that run ends.
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

// littleWork reports whether there is so little work ready that waking another worker for it would
// cost more than it gains.
func (l *Ledger) littleWork() bool {
	return l.average > 0 && time.Duration(l.startable())*l.average < wakeFor
}

// wakeDelayed wakes a worker for Holds that the running workers haven't taken.
func (l *Ledger) wakeDelayed(Instant) {
	l.wakeNow++
	l.wakeWorker()
	l.wakeNow--
}

// Resize changes Concurrency. Surplus workers end at once if they are idle, and otherwise after
// their slice, so no run is cut short.
func (l *Ledger) Resize(n int) {
	l.Concurrency = n
	for left := l.workers - n - l.spare(); left > 0 && len(l.idle) > 0; left-- {
		last := len(l.idle) - 1
		l.Out.Wake = append(l.Out.Wake, l.idle[last]) // its Take makes it end
		l.idle = l.idle[:last]
	}
	l.wakeWorker()
	l.wakeFetchers()
	l.watchUnclaimed()
}
