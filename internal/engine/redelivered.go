package engine

import "time"

// redelivered counts the redelivered Holds that run. Their number is bounded, so that the
// recovery of many events leaves handlers to fresh ones. A further one is postponed: it is
// given back, or rests here, and the next Receive brings other events. The caller of a
// method has the scheduler's lock.
type redelivered struct {
	most    int           // of running; 0: no bound
	running int           // redelivered Holds that run
	average time.Duration // of their runs
	next    moment        // when the Hold that was postponed last is due
}

func (t *redelivered) init(most int) { t.most, t.average = most, prefetchTime } // until a run was measured

// full reports whether h must be postponed.
func (t *redelivered) full(h *Hold) bool {
	a := h.read.attachment
	return t.most > 0 && h.Redelivered() && t.running >= t.most && (a.delayer != nil || a.extender != nil)
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
func (t *redelivered) turn(now moment) moment {
	wait := max(moment(t.average/time.Duration(t.most)), perEvent)
	t.next = min(max(t.next, now)+min(wait, maxTurn), now+maxSpread)
	return t.next
}
