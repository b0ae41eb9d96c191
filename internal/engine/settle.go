package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/batch"
	"github.com/seed41896749/eventbus/internal/wait"
	"github.com/seed41896749/eventbus/observer"
)

// A settler has three queues: acknowledgements, Delays and dead letters. Each makes one call at a
// time for all Holds that have accumulated. After a failed call, a Hold waits in the ledger for its
// next call, so it doesn't delay others.
type settler struct {
	*consumer
	acks        *batch.Group[*Hold]
	delays      *batch.Group[*Hold]
	deadLetters *deadLetterQueue
	acking      []*backend.Delivery // memory that Ack calls reuse
	failures    settleFailures

	mu        sync.Mutex
	lastCalls time.Time // deadline of all calls after a drain has given up
}

const acksPerCall = 256

func newSettler(c *consumer) *settler {
	most := acksPerCall
	if b := c.sub.engine.limits.Batch; b > 0 {
		most = min(most, b)
	}
	t := &settler{consumer: c, failures: settleFailures{consumer: c}}
	t.acks = batch.New(most, batch.Waits, t.flushAcks)
	t.delays = batch.New(most, batch.AtOnce, t.flushDelays)
	t.deadLetters = newDeadLetterQueue(c, most)
	return t
}

// again repeats the call that settles h.
func (t *settler) again(h *Hold) {
	switch b, ok := h.DeadLetter.(*pendingDeadLetter); {
	case ok:
		t.deadLetters.queue.Add(b)
	case h.Returning():
		t.delays.Add(h)
	default:
		t.acks.Add(h)
		t.acks.Flush()
	}
}

// idle waits until the queues are empty.
func (t *settler) idle() {
	t.deadLetters.queue.Wait() // first, because an event whose dead letter isn't stored becomes a Delay
	t.delays.Wait()
	t.acks.Wait()
}

const (
	settleTimeout = 10 * time.Second       // limits one call
	lastSettle    = 250 * time.Millisecond // limits all calls after a drain has given up
	leastRetry    = 10 * time.Millisecond
	firstRetry    = 100 * time.Millisecond
	mostTries     = 10 // how often firstRetry may double
	maxRetry      = time.Second
)

// retryWait counts a failed call to settle h, and returns how long to wait before the next one: at
// most half of the time until its lease ends, but at least leastRetry. err is the error of the
// call. The caller holds the ledger's lock.
func (t *settler) retryWait(h *Hold, err error) time.Duration {
	now := t.sub.ledger.Now
	delay := wait.Jittered(wait.Doubled(firstRetry, maxRetry, int(h.Tries)))
	t.failures.failed(h, now, err)
	h.Tries = min(h.Tries+1, mostTries)
	h.Unsure = h.Unsure || errors.Is(err, backend.ErrUnknownOutcome) || backend.Class(err) == nil
	return max(min(delay, time.Duration(h.Until()-now)/2), leastRetry)
}

// hopeless reports whether it is pointless to wait and then call again to settle h. The caller
// holds the ledger's lock.
func (t *settler) hopeless(h *Hold, err error, wait time.Duration) bool {
	return errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrLeaseLost) ||
		errors.Is(err, errors.ErrUnsupported) || h.Lost() || h.Until() <= t.sub.ledger.Now.Plus(wait)
}

// carryOut settles h according to the verdict v. err is the error of its run.
func (t *settler) carryOut(h *Hold, v verdict, err error) {
	s := t.sub
	switch v.outcome {
	case observer.Acknowledge:
		t.ack(h)
	case observer.Discard:
		s.discarded(s.aboutLive(h, h.Run), v.reason, err)
		t.ack(h)
	case observer.DeadLetter:
		t.deadLetters.bury(h, v.reason, err)
	case observer.Retry, observer.Snooze, observer.Return:
		t.retry(h, v, err)
	default:
		left := v.reason == leftToLease
		if left {
			t.postponed(h, v, s.Lease, err)
			s.notifyLost(h, h.Run, false, err)
		}
		s.ledger.lock()
		if left {
			s.ledger.Failed(h)
		}
		s.ledger.Release(h, errLeaseLost(err))
		s.ledger.unlock()
	}
}

// ack acknowledges h, unless that was already done before its run.
func (t *settler) ack(h *Hold) {
	b := &t.sub.ledger
	b.lock()
	defer b.unlock()
	if h.Leaseless() {
		b.Release(h, nil)
		return
	}
	b.Acknowledge(h)
}

// ackUnhandled is like ack. Since the handler of h doesn't run, or doesn't run again, the next
// event with its key may run in any Mode.
func (t *settler) ackUnhandled(h *Hold) {
	t.sub.ledger.lock()
	t.sub.ledger.Settled(h)
	t.sub.ledger.unlock()
	t.ack(h)
}

// flushAcks acknowledges a batch of Holds, with one call for each attachment.
func (t *settler) flushAcks(hs []*Hold) {
	for from := 0; from < len(hs); {
		a, to := attachmentOf(hs[from]), from+1
		for to < len(hs) && attachmentOf(hs[to]) == a {
			to++
		}
		t.flushSomeAcks(a, hs[from:to])
		from = to
	}
}

// flushSomeAcks acknowledges Holds of one attachment.
func (t *settler) flushSomeAcks(a *attachment, hs []*Hold) {
	s := t.sub
	ds := t.acking[:0]
	for _, h := range hs {
		ds = append(ds, &h.Delivery)
	}
	t.acking = ds
	defer clear(ds)
	tags := t.tags(hs)
	start := time.Now()
	ctx, cancel := t.settleContext()
	err := a.ack(ctx, ds)
	cancel()
	failed := 0
	for i := range hs {
		if err != nil && backend.ErrorAt(err, i) != nil {
			failed++
		}
	}
	done := len(hs) - failed
	s.counts.acknowledged.Add(int64(done)) // before the events are released
	s.ledger.lock()
	began := s.instant(start)
	for i, h := range hs {
		if e := backend.ErrorAt(err, i); e == nil {
			t.failures.ended(h)
			if s.failing.some.Load() {
				s.failing.forget(t.topic, &h.Delivery)
			}
			s.ledger.Acked(h, began)
		} else {
			t.notAcked(h, e)
		}
	}
	s.ledger.unlock()
	if done > 0 {
		if s.notifier.later.Settled != nil {
			if failed > 0 {
				tags = nil
			}
			notify(s.notifier.later.Settled, observer.Settled{Topic: t.name, Group: s.Group, Events: done, Took: time.Since(start), Tags: tags})
		}
	}
	if failed == 0 {
		t.failures.leftToLease(byAck, 0, nil)
		t.failures.check(s.instant(time.Now()))
		return
	}
	s.notifier.failed(observer.Ack, t.about(), failed, err)
	t.failures.check(s.instant(time.Now()))
}

// notAcked schedules another call to acknowledge h after the error err, or gives up if that is
// pointless. The caller holds the ledger's lock.
func (t *settler) notAcked(h *Hold, err error) {
	b := &t.sub.ledger
	wait := t.retryWait(h, err)
	switch {
	case t.hopeless(h, err, wait):
		if !errors.Is(err, backend.ErrLeaseLost) {
			t.failures.leftToLease(byAck, b.Now, err)
		}
		t.failures.ended(h)
		b.NotAcked(h, notConfirmed(h, err))
	case t.sub.live.Err() != nil:
		b.EndWait(h, err) // h stays held, so that the drain counts it
	default:
		b.Repeat(h, b.Now.Plus(wait))
	}
}

// notConfirmed returns the error for a caller that is waiting for the acknowledgement of h. If an
// earlier call failed and the lease is now lost, the outcome is unknown, because that earlier call
// may have acknowledged h.
func notConfirmed(h *Hold, err error) error {
	if h.Unsure && errors.Is(err, backend.ErrLeaseLost) {
		err = unknown(err)
	}
	return fmt.Errorf("eventbus: not acknowledged within the lease: %w", err)
}

// tags returns the tags of a batch's runs (see [Tag]) for the hook Settled.
func (t *settler) tags(hs []*Hold) (tags []any) {
	if t.sub.notifier.later.Settled == nil {
		return nil
	}
	for _, h := range hs {
		if r, ok := h.Run.(*Run); ok {
			if tag := r.tagged(); tag != nil {
				tags = append(tags, tag)
			}
		}
	}
	return tags
}

// settleContext returns the context of one call to settle. Calls get a live context even after a
// drain has given up. All of those contexts end together, lastSettle after the first of them was
// created.
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
