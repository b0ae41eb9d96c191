package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// settleFailures keeps track of a topic's Holds whose settlement fails. If one keeps failing for
// longer than a lease, the subscription has the trouble noSettle until the Hold is settled or lost.
type settleFailures struct {
	consumer *consumer

	some  atomic.Bool // there is something to check
	mu    sync.Mutex
	since map[*Hold]instant // when the first call to settle the Hold failed
	err   error             // of the last failed call

	left [2]instant // by verb: when a Hold was last left to its lease; zero if never, or if the verb works again
}

// The verbs of leftToLease.
const (
	byAck = iota
	byDelay
)

// failed records that a call to settle h has failed.
func (o *settleFailures) failed(h *Hold, now instant, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.some.Store(true)
	if o.since == nil {
		o.since = map[*Hold]instant{}
	}
	if o.since[h] == 0 {
		o.since[h] = now
	}
	o.err = err
}

// ended removes h, which is no longer held.
func (o *settleFailures) ended(h *Hold) {
	if h.Tries == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, h)
}

// leftToLease records that a Hold was left to its lease at the given time because a verb keeps
// failing with err. A zero time means that the verb works again.
func (o *settleFailures) leftToLease(verb int, at instant, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left[verb] = at; err != nil {
		o.err = err
		o.some.Store(true)
		time.AfterFunc(o.consumer.sub.Lease, func() { o.check(o.consumer.sub.instant(time.Now())) })
	}
}

// check starts or ends the trouble noSettle.
func (o *settleFailures) check(now instant) {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	n, first := 0, now
	for _, at := range o.since {
		first = min(first, at)
		n++
	}
	if n == 0 && o.left == [2]instant{} {
		o.some.Store(false)
	}
	err, lasted := o.err, time.Duration(now-first)
	left := false
	for _, at := range o.left {
		left = left || at != 0 && now < at.Plus(o.consumer.sub.Lease)
	}
	o.mu.Unlock()
	switch {
	case n > 0 && lasted >= o.consumer.sub.Lease:
		o.consumer.sub.status.trouble(noSettle, o.consumer, fmt.Errorf("%d events cannot be settled, for %v: %w", n, lasted.Round(time.Second), err))
	case left:
		o.consumer.sub.status.trouble(noSettle, o.consumer, fmt.Errorf("events cannot be settled, and are left to their leases: %w", err))
	default:
		o.consumer.sub.status.clear(noSettle, o.consumer)
	}
}
