package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// rouse sees to it that somebody works on what is ready: at most one worker is
// on its way at a time, and it rouses the next.
func (d *desk) rouse() {
	if d.closed || d.waking || !d.startable() {
		return
	}
	switch {
	case d.idle > 0:
		d.waking = true
		d.work.Signal()
	case d.workers < d.sub.Concurrency:
		d.waking = true
		d.workers++
		d.hire()
	}
}

func (d *desk) startable() bool {
	return d.ready.len() > 0 || d.suspect == nil && len(d.suspects) > 0
}

// take waits for a Hold to run. It returns nil when there will be none.
func (d *desk) take() *Hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		d.waking = false
		if d.closed {
			d.workers--
			return nil
		}
		if d.startable() {
			return d.start(time.Now())
		}
		d.idle++
		d.work.Wait()
		d.idle--
	}
}

// exchange notes that done is being acknowledged and takes another Hold to run, if
// there is one to start.
func (d *desk) exchange(done *Hold, now time.Time) *Hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.swap(done, now)
}

// swap is exchange with the lock held.
func (d *desk) swap(done *Hold, now time.Time) *Hold {
	waking := d.waking
	d.waking = true // who settles is the one that comes
	d.settling(done, true)
	d.waking = waking
	done.read.plain++
	if d.closed || !d.startable() {
		return nil
	}
	return d.start(now)
}

// start picks a Hold to run.
func (d *desk) start(now time.Time) *Hold {
	h := d.pick()
	h.stage, h.working, h.began = running, true, 0
	d.working++
	if d.sub.Mode != OnReceive {
		d.begin(h, now)
	}
	d.rouse()
	d.tellRoom()
	return h
}

// begin starts the clock of h's run.
func (d *desk) begin(h *Hold, now time.Time) {
	h.began = d.sub.moment(now)
	deadline := moment(0)
	if d.sub.Timeout > 0 {
		deadline = d.sub.moment(now.Add(d.sub.Timeout)) // which never overflows
	}
	h.ctx.begin(&d.sub.ground, deadline)
	if d.interrupted {
		h.ctx.cancel(context.Canceled, ErrShutdown)
	}
}

func (d *desk) pick() *Hold {
	if d.suspect == nil && len(d.suspects) > 0 && (d.ready.len() == 0 || rand.IntN(2) == 0) {
		i := rand.IntN(len(d.suspects))
		d.suspect = d.suspects[i]
		d.suspects = slices.Delete(d.suspects, i, i+1)
		return d.suspect
	}
	return d.ready.pop()
}

// A finding is how things stand when a handler returns.
type finding struct {
	lost        bool // the lease
	late        bool // the timeout has passed
	decided     bool // the program has settled it already, or the watch has
	interrupted bool // a drain has cancelled the handlers
}

// returned notes that the handler of h has returned after so long, and reports
// what it finds.
func (d *desk) returned(h *Hold, took time.Duration, err error) finding {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopWorking(h)
	h.took, h.failed = h.took+took, err != nil
	d.measure(took)
	f := finding{lost: h.lost, late: h.late, decided: h.stage != running, interrupted: d.interrupted}
	switch {
	case f.decided:
	case d.sub.Mode == Manual && err == nil && !h.lost:
		h.stage, h.inTrust = entrusted, true
		d.entrusted++
	default:
		h.stage = settling
	}
	d.tellRoom()
	d.tellQuiet()
	return f
}

// relieve is returned and exchange in one, for a run that has ended well: whatever
// else is found, it is acknowledged, unless it has been given up already.
func (d *desk) relieve(h *Hold, now time.Time) (next *Hold, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.stage != running {
		return nil, false
	}
	took := time.Duration(d.sub.moment(now) - h.began)
	d.stopWorking(h)
	h.took, h.failed = h.took+took, false
	d.measure(took)
	if next = d.swap(h, now); next == nil {
		d.tellRoom()
		d.tellQuiet()
	}
	return next, true
}

// unrun notes that h, taken to be run, will not be.
func (d *desk) unrun(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopWorking(h)
	h.stage, h.failed = settling, true
	d.tellRoom()
	d.tellQuiet()
}

// stopWorking notes that no handler runs for h any more.
func (d *desk) stopWorking(h *Hold) {
	h.working = false
	d.working--
	if d.suspect == h {
		d.suspect = nil
		d.rouse()
	}
}

func (d *desk) isInterrupted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.interrupted
}

// measure keeps a moving average of handler times.
func (d *desk) measure(took time.Duration) {
	if !d.measured {
		d.average, d.measured = took, true
		return
	}
	d.average += (took - d.average) / 8
}
