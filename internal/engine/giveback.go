package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// retry schedules the redelivery of h after v.after, but not before the floor of its event allows
// it. It reports this to the observer, unless h is given back by a drain.
func (t *settler) retry(h *Hold, v verdict, err error) {
	s := t.sub
	after := v.after
	s.ledger.lock()
	if v.outcome != observer.Return {
		after = max(after, s.ledger.Floor(h))
	}
	if v.outcome == observer.Retry {
		s.ledger.Failed(h)
	}
	s.ledger.unlock()
	allowed := t.allowed(after)
	if allowed < after && attachmentOf(h).delayer != nil {
		s.notifier.failed(observer.Delay, s.aboutHold(h, h.Run), 1, fmt.Errorf("eventbus: the event is redelivered after %v, not %v, because the backend allows no longer delay", allowed, after))
	}
	switch {
	case v.outcome == observer.Retry:
		s.counts.retried.Add(1)
	case v.outcome == observer.Snooze && !isUnrun(err):
		s.counts.snoozes.Add(1)
	}
	if v.outcome != observer.Return {
		t.postponed(h, v, allowed, err)
	}
	s.ledger.lock()
	s.ledger.Postpone(h, s.ledger.Now.Plus(allowed), v.outcome == observer.Retry)
	s.ledger.unlock()
}

// allowed returns d, or the backend's longest delay if d exceeds it.
func (t *settler) allowed(d time.Duration) time.Duration {
	if m := t.sub.engine.limits.Delay; m > 0 {
		return min(d, m)
	}
	return d
}

// flushDelays gives back a batch of Holds, with one call for each attachment.
func (t *settler) flushDelays(hs []*Hold) {
	for from := 0; from < len(hs); {
		a, to := attachmentOf(hs[from]), from+1
		for to < len(hs) && attachmentOf(hs[to]) == a {
			to++
		}
		t.delay(a, hs[from:to])
		from = to
	}
	t.failures.check(t.sub.instant(time.Now()))
}

// delay gives back Holds of one attachment.
func (t *settler) delay(a *attachment, hs []*Hold) {
	s, refunds := t.sub, t.sub.engine.limits.Refund
	live, ds := hs[:0], make([]backend.Delayed, 0, len(hs))
	s.ledger.lock()
	for _, h := range hs {
		if h.Tries > 0 && h.Lost() { // calls are not repeated after the lease
			t.giveUpDelay(h, backend.ErrUnknownOutcome)
			continue
		}
		s.ledger.BeforeDelay(h, refunds)
		after := time.Duration(max(h.Due-s.ledger.Now, 0))
		live, ds = append(live, h), append(ds, backend.Delayed{Delivery: h.Delivery, For: t.allowed(after), Refund: !h.Counted})
	}
	s.ledger.unlock()
	if len(live) == 0 {
		return
	}
	ctx, cancel := t.settleContext()
	err := a.delay(ctx, ds)
	cancel()
	failed := 0
	s.ledger.lock()
	for i, h := range live {
		switch e := backend.ErrorAt(err, i); {
		case e == nil:
			t.failures.ended(h)
			s.ledger.Delayed(h, s.ledger.Now.Plus(ds[i].For))
		case errors.Is(e, backend.ErrLeaseLost):
			t.failures.ended(h)
			s.ledger.NotDelayed(h, e)
		default:
			failed++
			if !backend.NotStored(e) {
				s.ledger.MarkUnknown(h, ds[i].For)
			}
			t.notDelayed(h, e)
		}
	}
	s.ledger.unlock()
	switch {
	case failed == 0:
		t.failures.leftToLease(byDelay, 0, nil)
	case !errors.Is(err, errors.ErrUnsupported):
		s.notifier.failed(observer.Delay, t.about(), failed, err)
	}
}

// notDelayed schedules another Delay call for h after the error err, or gives up. The caller holds
// the ledger's lock.
func (t *settler) notDelayed(h *Hold, err error) {
	switch wait := t.retryWait(h, err); {
	case t.sub.live.Err() != nil: // h stays held, so that the drain counts it
	case t.hopeless(h, err, 0):
		t.giveUpDelay(h, err)
	default:
		t.sub.ledger.Repeat(h, t.sub.ledger.Now.Plus(wait))
	}
}

// giveUpDelay releases h after its Delay calls have failed. The caller holds the ledger's lock.
func (t *settler) giveUpDelay(h *Hold, err error) {
	if !errors.Is(err, errors.ErrUnsupported) {
		t.failures.leftToLease(byDelay, t.sub.ledger.Now, err)
	}
	t.failures.ended(h)
	t.sub.ledger.NotDelayed(h, err)
}
