package ledger

import (
	"time"
)

// collect records the results of the runs that have succeeded. Failed runs are reported through
// Returned.
func (l *Ledger) collect(w *Worker) {
	for done := int(w.done.Load()); w.counted < done; w.counted++ {
		if h := w.holds[w.counted]; h != nil && h.worker == w {
			l.succeeded(h, w.times[w.counted])
		}
	}
}

func (l *Ledger) succeeded(h *Hold, at span) {
	l.takeFromWorker(h)
	h.inSlice = false
	h.began = at.began
	if !l.Entrusts {
		l.count(at, false)
	}
	switch {
	case h.state != taken: // the program has settled it
	case h.leaseless:
		l.Release(h, nil)
	case h.lost || h.until <= at.ended:
		l.Lose(h, nil)
		l.Release(h, LeaseLost(nil))
	case l.Entrusts:
		l.entrust(h)
	default:
		l.Acknowledge(h)
	}
}

// steal takes back the Holds of w that haven't started.
func (l *Ledger) steal(w *Worker) {
	from := int(w.next.Swap(stolen))
	for i := len(w.holds) - 1; i >= from; i-- {
		h := w.holds[i]
		if h == nil || h.worker != w || h.state != taken {
			continue
		}
		l.takeFromWorker(h)
		h.inSlice = false
		if h.lost { // while it was in the slice
			l.Release(h, LeaseLost(nil))
			continue
		}
		if h.lane != nil && h.lane.head != h { // behind another one with its key
			h.lane.remove(h)
			l.startWaiting(h)
		} else {
			h.state = ready
			l.putBack(h)
		}
	}
	w.holds = w.holds[:min(from, len(w.holds))]
	l.set(&w.overslice, 0)
}

// watchTimeout handles the current run of w once its timeout has passed, and again once the run
// counts as stuck.
func (l *Ledger) watchTimeout(w *Worker, now Instant) {
	began := Instant(w.began.Load())
	i := int(w.next.Load()) - 1
	switch {
	case w.holds == nil:
		return
	case began == 0 || began != Instant(w.began.Load()): // between two runs
		l.set(&w.timeouts, now.Plus(l.Timeout))
		return
	case began.Plus(l.Timeout) > now:
		l.set(&w.timeouts, began.Plus(l.Timeout))
		return
	}
	runs := w.holds
	if l.Batch.Size == 0 {
		runs = w.holds[min(i, len(w.holds)-1):][:1]
	}
	gone := began.Plus(l.Timeout).Plus(stuckAfter)
	if w.late != began {
		w.late = began
		for _, h := range runs {
			l.timedOut(h, w)
		}
	}
	if now < gone {
		l.set(&w.timeouts, gone)
		return
	}
	if !w.stuck {
		l.detachStuck(w, runs, now)
	}
}

// timedOut ends the context of the run of h. In manual mode it also takes h away from the program.
func (l *Ledger) timedOut(h *Hold, w *Worker) {
	if h == nil || h.worker != w {
		return
	}
	h.late = true
	if l.Leaves != nil && l.Leaves(h) {
		h.left = true
		l.Failed(h)
	}
	if !l.Entrusts {
		l.do(Effect{Kind: EndRun, Run: h.Run, Err: ErrTimeout})
	} else {
		l.expire(h)
	}
}

// expire takes h away from the program because it wasn't settled in time.
func (l *Ledger) expire(h *Hold) {
	if h.lost || h.state != taken && h.state != entrusted {
		return
	}
	if h.worker != nil {
		h.began = h.worker.late
	}
	h.trust()
	h.state, h.expired, h.failed = settling, true, true
	l.do(Effect{Kind: TimedOut, Hold: h, Run: h.Run})
}

// detachStuck takes the Holds away from a stuck run. They are settled as timed out, and a spare
// worker may run in place of w.
func (l *Ledger) detachStuck(w *Worker, runs []*Hold, now Instant) {
	w.stuck = true
	l.working--
	l.stuck++
	l.collect(w)
	l.steal(w)
	for _, h := range runs {
		if h == nil {
			continue
		}
		l.do(Effect{Kind: Stuck, Hold: h, Run: h.Run, Running: true, For: time.Duration(now - w.late)})
		if h.worker != w {
			continue
		}
		w.lostRun, h.began = h.Run, w.late
		l.takeFromWorker(h)
		if !h.leaseless {
			w.countStuck(h)
		}
		if l.count(span{w.late, now}, true); h.state == taken {
			h.state = settling
			l.do(Effect{Kind: TimedOut, Hold: h, Run: h.Run})
		}
	}
	l.wakeWorker()
	l.wakeFetchers()
}

// A Returned describes a run that has ended.
type Returned struct {
	Decided     bool // the Hold was settled, or taken away from the run, before the run ended
	Lost        bool
	Late        bool // the timeout has passed
	Leaseless   bool // the message was acknowledged before its run
	Interrupted bool // a drain has cancelled the run
}

// Returned records that a run of h by w has ended, and how. unrun means that no handler ran. The
// Holds that w hasn't started are taken back, because they may have the same key.
//
// Unless the Hold has already been decided or is now up to the program, the caller settles it after
// releasing the lock. Until then, the state settling protects h.
func (l *Ledger) Returned(w *Worker, h *Hold, run any, err error, unrun bool) (r Returned) {
	l.collect(w)
	if l.Batch.Size == 0 {
		l.steal(w)
	}
	own := h.worker == w && h.Run == run
	r = Returned{
		Decided: !own || h.state != taken, Lost: own && h.Lost(),
		Leaseless: h.leaseless, Interrupted: l.interrupted,
	}
	if !own {
		return r
	}
	h.inSlice = false
	w.holds[h.slot] = nil // from now on h may be reused
	at := w.times[h.slot]
	h.began = at.began
	r.Late = l.Timeout > 0 && time.Duration(at.ended-at.began) >= l.Timeout
	if r.Lost && h.state == taken {
		l.Lose(h, nil)
	}
	l.takeFromWorker(h)
	if !unrun && (!l.Entrusts || err != nil && !r.Decided) {
		l.count(at, err != nil)
	}
	switch {
	case r.Decided:
	case l.Entrusts && err == nil && !r.Lost:
		l.entrust(h)
	default:
		h.state = settling
	}
	return r
}

// entrust leaves the settlement of h to the program, after its run.
func (l *Ledger) entrust(h *Hold) {
	h.trust()
	h.state = entrusted
	if l.Timeout > 0 {
		l.setHoldAlarm(h, h.began.Plus(l.Timeout))
	}
}

func (h *Hold) trust() {
	if !h.trusted {
		h.trusted = true
		h.Source.ledger.entrusts++
	}
}

// count records a run or, in manual mode, the time until settlement.
func (l *Ledger) count(at span, failed bool) {
	took := time.Duration(at.ended - at.began)
	if l.average == 0 {
		l.average = took
	}
	l.average = max(l.average+(took-l.average)/8, 1)
	l.Out.Freed.Runs++
	l.Out.Freed.Took += took
	if failed {
		l.Out.Freed.Failed++
	}
}
