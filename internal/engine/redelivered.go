package engine

import "time"

// redelivered bounds how many redelivered Holds run at the same time, so that new events
// find free handlers even when many events are redelivered. A redelivered Hold beyond the
// bound is postponed: it is given back, or rests in this member, and the next Receive
// brings other events. Callers of its methods hold the scheduler's lock.
type redelivered struct {
	most    int           // highest value of running; 0: no bound
	running int           // redelivered Holds that run
	average time.Duration // moving average of how long a redelivered Hold runs
	next    moment        // when the Hold that was postponed last is due
}

func (t *redelivered) init(most int) { t.most, t.average = most, prefetchTime } // average is a guess

// counts reports whether h counts for the bound. If the backend refunds attempts, a first
// attempt never counts, because no handler had the event: a member gave it back unstarted.
func (t *redelivered) counts(h *Hold) bool {
	return h.attempt > 1 || h.redriven || h.delivery.Redelivered && !h.read.sub.Policy.exact
}

// full reports whether h must be postponed, because it is redelivered and as many
// redelivered Holds run as the bound allows.
func (t *redelivered) full(h *Hold) bool {
	a := h.read.attachment
	return t.most > 0 && t.counts(h) && t.running >= t.most && (a.delayer != nil || a.extender != nil)
}

// begins notes that a run of h begins. It counts only redelivered Holds. The ledger calls
// ends when the run has ended.
func (t *redelivered) begins(h *Hold) {
	if t.counts(h) {
		t.running++
	}
}

func (t *redelivered) ends(h *Hold, took time.Duration) {
	if t.counts(h) {
		t.running--
		t.average += (took - t.average) / 8
	}
}

// maxTurn is the longest time between the moments at which two postponed Holds are due.
// Without it, slow runs would postpone Holds for too long.
const maxTurn = moment(time.Second)

// turn returns when the next postponed Hold is due. Postponed Holds are due one after
// another, at the average pace of their runs, so that most are postponed a few times only.
// All are due within ten seconds.
func (t *redelivered) turn(now moment) moment {
	wait := max(moment(t.average/time.Duration(t.most)), perEvent)
	t.next = min(max(t.next, now)+min(wait, maxTurn), now+maxSpread)
	return t.next
}
