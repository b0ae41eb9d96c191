package engine

import "time"

// redelivered counts the redelivered Holds that run. Their number is bounded, so that the
// recovery of many events leaves handlers to fresh ones. A further one is postponed: it is
// given back, or rests here, and the next Receive brings other events. The caller of a
// method has the scheduler's lock.
type redelivered struct {
	running int           // redelivered Holds that run
	average time.Duration // of their runs
	next    moment        // when the Hold that was postponed last is due
}

// full reports whether h must be postponed.
func (d *ledger) full(h *Hold) bool {
	a := h.read.attachment
	return d.sub.MaxRedelivered > 0 && h.Redelivered() && d.redelivered.running >= d.sub.MaxRedelivered &&
		(a.delayer != nil || a.extender != nil)
}

// begins notes that h begins, and ends that it has ended.
func (t *redelivered) begins(h *Hold) {
	if h.Redelivered() {
		t.running++
	}
}

func (t *redelivered) ends(h *Hold, took time.Duration) {
	if h.Redelivered() {
		t.running--
		t.average += (took - t.average) / 8
	}
}

// maxTurn is between two postponed Holds, at most. It bounds the harm of one slow run.
const maxTurn = moment(time.Second)

// turn returns when a postponed Hold is due. Postponed Holds return as fast as they can
// run, and within ten seconds, so that each is read a few times and not all the time.
func (d *ledger) turn(now moment) moment {
	t := &d.redelivered
	wait := max(moment(t.average/time.Duration(d.sub.MaxRedelivered)), perEvent)
	t.next = min(max(t.next, now)+min(wait, maxTurn), now+maxSpread)
	return t.next
}
