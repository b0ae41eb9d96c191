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

// Settlements go through three queues: acknowledgements, Delays and dead letters. A queue
// makes one call at a time for the Holds that have gathered. A Hold whose call fails waits
// for its repetition by a timer of its own, so that it delays no other.

// A settler has the queues of settlements.
type settler struct {
	sub     *Subscription
	acks    *batch.Group[*Hold]
	delays  *batch.Group[*giveBack]
	burials *batch.Group[burial]
	acking  []*backend.Delivery // memory of the one call of Ack under way

	mu        sync.Mutex
	lastCalls time.Time // when the calls after a drain has given up must end
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

// wait returns when everything is settled, or given up.
func (t *settler) wait() {
	t.burials.Wait() // one that fails becomes a Delay
	t.delays.Wait()
	t.acks.Wait()
}

// hurry repeats at once the calls that wait to be repeated.
func (t *settler) hurry() {
	t.burials.Hurry()
	t.delays.Hurry()
	t.acks.Hurry()
}

const (
	settleTimeout = 10 * time.Second       // of one call
	lastSettle    = 250 * time.Millisecond // for all calls after a drain has given up
	firstRetry    = 100 * time.Millisecond
	maxRetry      = 5 * time.Second
)

// retryWait is how long hs wait after another call to settle them has failed.
func retryWait(hs ...*Hold) time.Duration {
	wait := min(firstRetry<<min(hs[0].tries, 10), maxRetry)
	for _, h := range hs {
		h.tries++
	}
	return wait/2 + rand.N(wait)
}

// hopeless reports whether another call to settle h cannot help.
func (t *settler) hopeless(h *Hold, err error, wait time.Duration) bool {
	return errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrLeaseLost) ||
		errors.Is(err, errors.ErrUnsupported) || h.leaseEnds(time.Now().Add(wait))
}

// leaseEnds reports whether the lease of h is lost, or will be over then.
func (h *Hold) leaseEnds(then time.Time) bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return h.lost || h.until <= d.sub.moment(then)
}

// carryOut settles h by the verdict.
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
			t.sub.tellLost(h, false, err)
		}
		t.sub.sched.release([]*Hold{h}, errLeaseLost(err))
	}
}

// ack acknowledges h with the next batch, or at once if no Hold is left to start.
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

// flushAcks acknowledges a batch.
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

// notAcked tries again to acknowledge h, unless that cannot help.
func (t *settler) notAcked(h *Hold, err error) {
	wait := retryWait(h)
	switch {
	case t.hopeless(h, err, wait):
		t.sub.sched.unacked(h, notConfirmed(h, err))
	case t.sub.live.Err() != nil:
		// It stays held, so that the drain counts it.
		h.endWait(err)
	default:
		t.acks.Later(h, wait)
	}
}

// notConfirmed is the error of a caller whose acknowledgement was not confirmed. If the
// lease is found to be lost after a call without an answer, the outcome is unknown,
// because that call may have acknowledged the Hold.
func notConfirmed(h *Hold, err error) error {
	if h.tries > 1 && errors.Is(err, backend.ErrLeaseLost) {
		err = unknown(err)
	}
	return fmt.Errorf("eventbus: not acknowledged within the lease: %w", err)
}

// acked notes and tells that a batch is acknowledged.
func (t *settler) acked(batch []*Hold, took time.Duration) {
	if len(batch) == 0 {
		return
	}
	t.sub.counts.acknowledged.Add(int64(len(batch)))
	for _, h := range batch {
		t.sub.attempts.forget(&h.delivery)
	}
	t.sub.sched.acknowledged(batch)
	tell(t.sub.notifier.later.Settled,
		observer.Settled{Topic: t.sub.Topic, Group: t.sub.Group, Events: len(batch), Took: took})
}

// acknowledged releases acknowledged Holds. A Hold that was acknowledged on receipt runs
// now.
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

// unacked gives up on h, which cannot be acknowledged. If h was to be acknowledged on
// receipt, its worker releases it.
func (d *scheduler) unacked(h *Hold, err error) {
	d.mu.Lock()
	defer d.unlock()
	if h.state == confirming {
		h.wait.end(err)
		return
	}
	d.sub.tellLost(h, false, err)
	d.free([]*Hold{h}, err)
}

// endWait tells the caller that waits for the settlement of h that h will not be settled.
func (h *Hold) endWait(err error) {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	if h.wait != nil {
		h.wait.end(err)
	}
}

// settleContext is alive even when a drain has given up, because a settlement never uses a
// cancelled context.
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
