package engine

import "time"

// redelivered bounds how many redelivered Holds run at once, so that new events find free
// handlers even when many events are redelivered. A further one is postponed: it is given
// back, or rests here, and the next Receive brings other events. The caller of a method
// holds the scheduler's lock.
type redelivered struct {
	most    int           // highest value of running; 0: no bound
	running int           // redelivered Holds that run
	average time.Duration // moving average of how long they run
	next    moment        // when the Hold that was postponed last is due
}

func (t *redelivered) init(most int) { t.most, t.average = most, prefetchTime } // a guess

// full reports whether h must be postponed, because it is one redelivered Hold too many.
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

// maxTurn is the longest time between two postponed Holds. It bounds the harm of a slow run.
const maxTurn = moment(time.Second)

// turn returns when the next postponed Hold is due. Postponed Holds are due one by one, as
// fast as they can run, so that each is received a few times only. All are due within ten
// seconds.
func (t *redelivered) turn(now moment) moment {
	wait := max(moment(t.average/time.Duration(t.most)), perEvent)
	t.next = min(max(t.next, now)+min(wait, maxTurn), now+maxSpread)
	return t.next
}
