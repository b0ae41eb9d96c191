package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// settleTimeout bounds one call that settles.
const settleTimeout = 10 * time.Second

// carryOut does what was decided for h, which is not to be acknowledged.
func (s *Subscription) carryOut(h *Hold, v verdict, err error) {
	switch v.outcome {
	case observer.Discard:
		s.discarded(h, v.reason, err)
		s.ack(h)
	case observer.DeadLetter:
		s.bury(h, v.reason, err)
	case observer.Retry, observer.Snooze:
		s.retry(h, v, err)
	case observer.Return:
		s.sendBack(sentBack{hold: h, refund: v.refund})
	default:
		s.forget(h)
	}
}

// ack acknowledges h with the next batch: at once if nothing is left to start.
func (s *Subscription) ack(h *Hold) {
	if s.Mode == OnReceive {
		s.desk.release([]*Hold{h}, nil)
		return
	}
	hurry := s.desk.settle(h, s.Mode != Manual)
	s.acks.Add(h)
	if hurry {
		s.acks.Flush()
	}
}

// settle notes that h is being acknowledged, lets the next of its key run, and
// reports whether nothing is left to start.
func (d *desk) settle(h *Hold, next bool) (nothingReady bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settling(h, next)
	return d.ready.len() == 0
}

// settling is settle with the lock held.
func (d *desk) settling(h *Hold, next bool) {
	if h.stage != released {
		h.stage = settling
	}
	if next {
		d.leaveLane(h)
	}
}

// ackAndWait acknowledges h and returns when that is confirmed, or when it can
// no longer be.
func (s *Subscription) ackAndWait(h *Hold) error {
	w := &wait{receipt: true, ended: make(chan struct{})}
	s.desk.mu.Lock()
	h.wait = w
	s.desk.mu.Unlock()
	s.acks.Add(h)
	<-w.ended
	return w.result
}

// flushAcks acknowledges a batch, and tries again what fails until the leases
// are lost. Those may be lost already: then it tries once.
func (s *Subscription) flushAcks(batch []*Hold) {
	var again *backoff.ExponentialBackOff
	for len(batch) > 0 {
		start := time.Now()
		err := s.callEach(batch, func(ctx context.Context, a *attachment, ds []*backend.Delivery) error {
			return a.source.Ack(ctx, ds)
		})
		if err == nil {
			s.acked(batch, time.Since(start))
			return
		}
		var done, failed []*Hold
		var errs []error
		for i, h := range batch {
			if e := backend.ErrorAt(err, i); e == nil {
				done = append(done, h)
			} else {
				failed, errs = append(failed, h), append(errs, e)
			}
		}
		s.acked(done, time.Since(start))
		if batch = failed; len(batch) == 0 {
			return
		}
		s.engine.tell.failed(observer.Ack, s.about(), len(batch), err)
		if again == nil {
			again = newBackoff()
		}
		wait := again.NextBackOff()
		batch = s.giveUpOn(batch, errs, err, time.Now().Add(wait))
		if len(batch) > 0 && !sleep(s.live, wait) {
			s.desk.unanswered(batch, err)
			return // they stay held: the drain says how many there are
		}
	}
}

// acked notes what is acknowledged.
func (s *Subscription) acked(done []*Hold, took time.Duration) {
	if len(done) == 0 {
		return
	}
	s.counts.acknowledged.Add(int64(len(done)))
	for _, h := range done {
		s.attempts.forget(&h.delivery)
	}
	s.desk.release(s.desk.confirmed(done), nil)
	tell(s.engine.tell.later.Settled,
		observer.Settled{Topic: s.Topic, Group: s.Group, Events: len(done), Took: took})
}

// giveUpOn lets go those whose lease is lost or does not last until then, or whose
// group is gone, and returns the others.
func (s *Subscription) giveUpOn(batch []*Hold, errs []error, err error, then time.Time) (rest []*Hold) {
	hopeless := errors.Is(err, backend.ErrClosed)
	var let []*Hold
	s.desk.mu.Lock()
	for i, h := range batch {
		if hopeless || h.lost || errors.Is(errs[i], backend.ErrLeaseLost) || h.until <= s.moment(then) {
			let = append(let, h)
		} else {
			rest = append(rest, h)
		}
	}
	let = answered(let, errNotAcked(err))
	s.desk.mu.Unlock()
	s.desk.release(let, err)
	return rest
}

// unanswered tells those who wait for an acknowledgement on receipt that it will
// not come.
func (d *desk) unanswered(batch []*Hold, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answered(batch, errNotAcked(err))
}

func errNotAcked(err error) error {
	return fmt.Errorf("eventbus: not acknowledged within the lease: %w", err)
}

// confirmed answers those who wait for their acknowledgement on receipt, unless
// it came after the lease. It returns those that nobody waits for.
func (d *desk) confirmed(done []*Hold) []*Hold {
	now := d.sub.moment(time.Now())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range done {
		switch {
		case !h.confirming():
		case h.lost || h.until <= now:
			h.wait.end(errLeaseLost(nil))
		default:
			h.stage, h.isAcked = running, true
			h.wait.end(nil)
		}
	}
	return answered(done, nil)
}

// answered answers with err those who wait for an acknowledgement on receipt and
// have no answer yet. It returns those that nobody waits for.
func answered(hs []*Hold, err error) []*Hold {
	return slices.DeleteFunc(hs, func(h *Hold) bool {
		if h.confirming() && err != nil {
			h.wait.end(err)
		}
		return h.confirming()
	})
}

// confirming reports whether h is being acknowledged before it runs.
func (h *Hold) confirming() bool { return h.wait != nil && h.wait.receipt }

// callEach makes one call for a batch, or one per attachment where the group was
// attached to anew. The error is as long as the batch.
func (s *Subscription) callEach(batch []*Hold, call func(context.Context, *attachment, []*backend.Delivery) error) error {
	ctx, cancel := s.settleContext()
	defer cancel()
	one := batch[0].read.attachment
	ds := s.acking[:0]
	defer func() { clear(s.acking) }()
	for _, h := range batch {
		if h.read.attachment != one {
			return s.callApart(ctx, batch, call)
		}
		ds = append(ds, &h.delivery)
		s.acking = ds
	}
	return call(ctx, one, ds)
}

func (s *Subscription) callApart(ctx context.Context, batch []*Hold, call func(context.Context, *attachment, []*backend.Delivery) error) error {
	errs := make([]error, len(batch))
	for i, h := range batch {
		errs[i] = backend.ErrorAt(call(ctx, h.read.attachment, []*backend.Delivery{&h.delivery}), 0)
	}
	return backend.AsBatchError(errs)
}

// settleContext is alive even when a drain has given up: a cancelled context
// never carries a settle.
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

// lastSettle bounds what is settled after a drain has given up: all of it, as a
// broker that hangs in one call hangs in the next.
const lastSettle = 500 * time.Millisecond
