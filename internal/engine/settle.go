package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/observer"
)

// A settler has three queues: acknowledgements, Delays and dead letters. A queue makes one
// call at a time for the Holds that have gathered. After a failed call, the Hold waits with
// its own timer for the next call, so that it does not delay other Holds.
type settler struct {
	sub     *Subscription
	acks    *batch.Group[*Hold]
	delays  *batch.Group[*giveBack]
	burials *batch.Group[burial]
	acking  []*backend.Delivery // memory that each call of Ack uses again

	mu        sync.Mutex
	lastCalls time.Time // the deadline of all calls after a drain has given up
}

const (
	acksPerCall = 256
	ackWait     = 2 * time.Millisecond
)

func newSettler(s *Subscription) *settler {
	most, wait := acksPerCall, ackWait
	if b := s.engine.limits.Batch; b > 0 {
		most = min(most, b)
	}
	if s.Mode == OnReceive {
		wait = 0
	}
	t := &settler{sub: s}
	t.acks = batch.New(most, wait, t.flushAcks)
	t.delays = batch.New(most, 0, t.flushDelays)
	t.burials = batch.New(most, 0, t.flushBurials)
	return t
}

// wait returns when every queue is empty: each Hold in it was settled, or given up.
func (t *settler) wait() {
	t.burials.Wait() // first, because a dead letter that fails becomes a Delay
	t.delays.Wait()
	t.acks.Wait()
}

// hurry ends the waits between failed calls and their repetitions, in every queue.
func (t *settler) hurry() {
	t.burials.Hurry()
	t.delays.Hurry()
	t.acks.Hurry()
}

const (
	settleTimeout = 10 * time.Second       // bounds one call
	lastSettle    = 250 * time.Millisecond // bounds all calls after a drain has given up
	leastRetry    = 10 * time.Millisecond
	firstRetry    = 100 * time.Millisecond
	mostTries     = 10 // doublings of firstRetry
	maxRetry      = 5 * time.Second
)

// retryWait counts a failed call to settle hs, and returns how long to wait before the next
// call: at most half of the time until the first of their leases ends, but at least leastRetry.
func (t *settler) retryWait(hs ...*Hold) time.Duration {
	d := &t.sub.sched
	d.mu.Lock()
	defer d.unlock()
	wait := min(firstRetry<<hs[0].tries, maxRetry)
	wait = wait/2 + rand.N(wait)
	now := d.sub.moment(time.Now())
	for _, h := range hs {
		h.tries = min(h.tries+1, mostTries)
		wait = min(wait, time.Duration(h.until-now)/2)
	}
	return max(wait, leastRetry)
}

// hopeless reports whether another call to settle h after wait cannot help.
func (t *settler) hopeless(h *Hold, err error, wait time.Duration) bool {
	return errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrLeaseLost) ||
		errors.Is(err, errors.ErrUnsupported) || h.leaseEnds(time.Now().Add(wait))
}

// leaseEnds reports whether the lease of h is lost or ends by then.
func (h *Hold) leaseEnds(then time.Time) bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return h.lost || h.until <= d.sub.moment(then)
}

// carryOut settles h by the verdict v; err is the error of its run.
func (t *settler) carryOut(h *Hold, v verdict, err error) {
	switch v.outcome {
	case observer.Acknowledge:
		t.ack(h)
	case observer.Discard:
		t.sub.discarded(h, v.reason, err)
		t.ack(h)
	case observer.DeadLetter:
		t.bury(h, v.reason, err)
	case observer.Retry, observer.Snooze, observer.Return:
		t.retry(h, v, err)
	default:
		if v.reason == leftToLease {
			t.sub.attempts.failed(&h.delivery, h.attempt)
			t.sub.tellLost(h, false, err)
		}
		t.sub.sched.release([]*Hold{h}, errLeaseLost(err))
	}
}

// ack acknowledges h with the next batch; if no Hold is ready, it does not wait for a full
// batch.
func (t *settler) ack(h *Hold) {
	if t.sub.Mode == OnReceive {
		t.sub.sched.release([]*Hold{h}, nil)
		return
	}
	hurry := t.sub.sched.settles(h)
	t.acks.Add(h)
	if hurry {
		t.acks.Flush()
	}
}

// flushAcks acknowledges a batch of Holds, with one call for each attachment in it.
func (t *settler) flushAcks(batch []*Hold) {
	for from := 0; from < len(batch); {
		a, to := batch[from].read.attachment, from+1
		for to < len(batch) && batch[to].read.attachment == a {
			to++
		}
		t.flushSomeAcks(a, batch[from:to])
		from = to
	}
}

// flushSomeAcks acknowledges Holds of one attachment.
func (t *settler) flushSomeAcks(a *attachment, batch []*Hold) {
	ds := t.acking[:0]
	for _, h := range batch {
		ds = append(ds, &h.delivery)
	}
	t.acking = ds
	defer clear(ds)
	start := time.Now()
	ctx, cancel := t.settleContext()
	err := a.ack(ctx, ds)
	cancel()
	if err == nil {
		t.acked(batch, time.Since(start))
		return
	}
	var done []*Hold
	failed := 0
	for i, h := range batch {
		if e := backend.ErrorAt(err, i); e == nil {
			done = append(done, h)
		} else {
			failed++
			t.notAcked(h, e)
		}
	}
	t.sub.notifier.failed(observer.Ack, t.sub.about(), failed, err)
	t.acked(done, time.Since(start))
}

// notAcked plans another call to acknowledge h after the error err. If another call cannot
// help, it gives up.
func (t *settler) notAcked(h *Hold, err error) {
	wait := t.retryWait(h)
	switch {
	case t.hopeless(h, err, wait):
		t.sub.sched.unacked(h, notConfirmed(h, err))
	case t.sub.live.Err() != nil:
		// h stays held, so that the drain counts it.
		h.endWait(err)
	default:
		t.acks.Later(h, wait)
	}
}

// notConfirmed returns the error for a caller that waits for the acknowledgement of h. If an
// earlier call has failed and now the lease is lost, the outcome is unknown, because the
// earlier call may have acknowledged h.
func notConfirmed(h *Hold, err error) error {
	if h.tries > 1 && errors.Is(err, backend.ErrLeaseLost) {
		err = unknown(err)
	}
	return fmt.Errorf("eventbus: not acknowledged within the lease: %w", err)
}

// acked counts, releases and reports the Holds of a batch after the broker has acknowledged
// them.
func (t *settler) acked(batch []*Hold, took time.Duration) {
	if len(batch) == 0 {
		return
	}
	t.sub.counts.acknowledged.Add(int64(len(batch)))
	for _, h := range batch {
		t.sub.attempts.forget(&h.delivery)
	}
	tags := t.tags(batch)
	t.sub.sched.acknowledged(batch)
	tell(t.sub.notifier.later.Settled,
		observer.Settled{Topic: t.sub.Topic, Group: t.sub.Group, Events: len(batch), Took: took, Tags: tags})
}

// tags returns the tags of the runs of a batch, see [Tag], for the hook Settled.
func (t *settler) tags(batch []*Hold) (tags []any) {
	if t.sub.notifier.later.Settled == nil {
		return nil
	}
	for _, h := range batch {
		if tag := h.ctx.tagged(); tag != nil {
			tags = append(tags, tag)
		}
	}
	return tags
}

// acknowledged releases acknowledged Holds. A Hold in state confirming may now run instead.
func (d *scheduler) acknowledged(hs []*Hold) {
	d.mu.Lock()
	defer d.unlock()
	now := d.sub.moment(time.Now())
	for i, h := range hs {
		if h.acked(now) {
			d.free(hs[i:i+1], nil)
		}
	}
}

// unacked releases h, which cannot be acknowledged. In state confirming it only ends the
// wait of the worker, which then releases h.
func (d *scheduler) unacked(h *Hold, err error) {
	d.mu.Lock()
	defer d.unlock()
	if h.state == confirming {
		h.wait.end(err)
		return
	}
	if !h.lost { // otherwise it was told when the lease was lost
		d.sub.tellLost(h, false, err)
	}
	d.free([]*Hold{h}, err)
}

// endWait ends, with err, the wait of a caller for the settlement of h.
func (h *Hold) endWait(err error) {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	h.wait.end(err)
}

// settleContext returns the context of one call to settle. After a drain has given up,
// calls still get a live context. All such contexts end together, lastSettle after the
// first of them was made.
func (t *settler) settleContext() (context.Context, context.CancelFunc) {
	if t.sub.live.Err() == nil {
		return context.WithTimeout(t.sub.live, settleTimeout)
	}
	t.mu.Lock()
	if t.lastCalls.IsZero() {
		t.lastCalls = time.Now().Add(lastSettle)
	}
	until := t.lastCalls
	t.mu.Unlock()
	return context.WithDeadline(context.Background(), until)
}
