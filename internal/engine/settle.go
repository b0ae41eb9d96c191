package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Settlements go through three queues: acknowledgements, Delays and dead letters.
// A queue makes one call at a time for the Holds that have gathered. A Hold whose call
// fails comes into its queue again by a timer of its own, so that it holds up no other.

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

// hopeless reports whether trying to settle h again cannot help.
func (s *Subscription) hopeless(h *Hold, err error, wait time.Duration) bool {
	return errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrLeaseLost) ||
		errors.Is(err, errors.ErrUnsupported) || s.sched.leaseEnds(h, time.Now().Add(wait))
}

// leaseEnds reports whether the lease of h is lost, or will be over then.
func (d *scheduler) leaseEnds(h *Hold, then time.Time) bool {
	d.mu.Lock()
	defer d.unlock()
	return h.lost || h.until <= d.sub.moment(then)
}

// carryOut settles h by the verdict.
func (s *Subscription) carryOut(h *Hold, v verdict, err error) {
	switch v.outcome {
	case observer.Acknowledge:
		s.ack(h)
	case observer.Discard:
		s.discarded(h, v.reason, err)
		s.ack(h)
	case observer.DeadLetter:
		s.bury(h, v.reason, err)
	case observer.Retry, observer.Snooze, observer.Return:
		s.retry(h, v, err)
	default:
		s.sched.release([]*Hold{h}, errLeaseLost(nil))
	}
}

// ack acknowledges h with the next batch: at once if nothing is left to start.
func (s *Subscription) ack(h *Hold) {
	if s.Mode == OnReceive {
		s.sched.release([]*Hold{h}, nil)
		return
	}
	hurry := s.sched.settles(h)
	s.acks.Add(h)
	if hurry {
		s.acks.Flush()
	}
}

// flushAcks acknowledges a batch.
func (s *Subscription) flushAcks(batch []*Hold) {
	for from := 0; from < len(batch); {
		a, to := batch[from].read.attachment, from+1
		for to < len(batch) && batch[to].read.attachment == a {
			to++
		}
		s.flushSomeAcks(a, batch[from:to])
		from = to
	}
}

// flushSomeAcks acknowledges Holds of one attachment.
func (s *Subscription) flushSomeAcks(a *attachment, batch []*Hold) {
	ds := s.acking[:0]
	for _, h := range batch {
		ds = append(ds, &h.delivery)
	}
	s.acking = ds
	defer clear(ds)
	start := time.Now()
	ctx, cancel := s.settleContext()
	err := a.ack(ctx, ds)
	cancel()
	if err == nil {
		s.acked(batch, time.Since(start))
		return
	}
	var done []*Hold
	failed := 0
	for i, h := range batch {
		if e := backend.ErrorAt(err, i); e == nil {
			done = append(done, h)
		} else {
			failed++
			s.notAcked(h, e)
		}
	}
	s.engine.tell.failed(observer.Ack, s.about(), failed, err)
	s.acked(done, time.Since(start))
}

// notAcked tries again to acknowledge h, unless that cannot help.
func (s *Subscription) notAcked(h *Hold, err error) {
	wait := retryWait(h)
	switch {
	case s.hopeless(h, err, wait):
		s.sched.unacked(h, notConfirmed(h, err))
	case s.live.Err() != nil:
		// It stays held: the drain says how many there are.
		s.sched.endWait(h, err)
	default:
		s.acks.Later(h, wait)
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
func (s *Subscription) acked(batch []*Hold, took time.Duration) {
	if len(batch) == 0 {
		return
	}
	s.counts.acknowledged.Add(int64(len(batch)))
	for _, h := range batch {
		s.attempts.forget(&h.delivery)
	}
	s.sched.acknowledged(batch)
	tell(s.engine.tell.later.Settled,
		observer.Settled{Topic: s.Topic, Group: s.Group, Events: len(batch), Took: took})
}

// acknowledged releases acknowledged Holds. A Hold that was acknowledged on receipt runs
// now.
func (d *scheduler) acknowledged(hs []*Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.free(d.acked(hs, d.sub.moment(time.Now())), nil)
}

// unacked gives h up, which cannot be acknowledged. If it was not to run before
// that, its worker releases it.
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

// endWait tells the caller that waits for the settlement of h that it will not come.
func (d *scheduler) endWait(h *Hold, err error) {
	d.mu.Lock()
	defer d.unlock()
	if h.wait != nil {
		h.wait.end(err)
	}
}

// settleContext is alive even when a drain has given up: a cancelled context
// never carries a settlement.
func (s *Subscription) settleContext() (context.Context, context.CancelFunc) {
	if s.live.Err() == nil {
		return context.WithTimeout(s.live, settleTimeout)
	}
	s.mu.Lock()
	if s.lastCalls.IsZero() {
		s.lastCalls = time.Now().Add(lastSettle)
	}
	until := s.lastCalls
	s.mu.Unlock()
	return context.WithDeadline(context.Background(), until)
}
