package engine

import (
	"context"

	"github.com/seed41896749/eventbus/observer"
)

// Ack acknowledges h and returns when the broker has confirmed. Manual mode
// only.
func (h *Hold) Ack(ctx context.Context) error {
	s := h.read.sub
	w, err := s.desk.claim(h)
	if err != nil {
		return err
	}
	s.acks.Add(h)
	s.acks.Flush()
	return h.await(ctx, w)
}

// Nack settles h as a failed run with the given cause, and returns when it is
// given back or put aside. Manual mode only.
func (h *Hold) Nack(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errNack
	}
	s := h.read.sub
	w, err := s.desk.claim(h)
	if err != nil {
		return err
	}
	s.failed(h, cause)
	return h.await(ctx, w)
}

// failed does what follows the failure of a claimed h.
func (s *Subscription) failed(h *Hold, cause error) {
	s.counts.failures.Add(1)
	s.desk.markFailed(h)
	v := s.Policy.decide(run{err: cause, attempt: h.attempt, interrupted: s.desk.isInterrupted()})
	if v.outcome == observer.Acknowledge {
		v.outcome = observer.Forget
	}
	s.carryOut(h, v, cause)
}

// claim gives the caller the right to settle h.
func (d *desk) claim(h *Hold) (*wait, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case h.lost, h.expired:
		return nil, errLeaseLost(nil)
	case h.stage == running:
		h.inTrust = true
		d.entrusted++
	case h.stage != entrusted:
		return nil, ErrSettled
	}
	h.stage = settling
	h.wait = &wait{ended: make(chan struct{})}
	return h.wait, nil
}

func (d *desk) markFailed(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.failed = true
}

// await waits for the settlement of h.
func (h *Hold) await(ctx context.Context, w *wait) error {
	select {
	case <-w.ended:
	case <-ctx.Done():
		if !isClosed(w.ended) {
			return unknown(ctx.Err())
		}
	}
	h.ctx.finish() // here too: it has ended when this returns
	return w.result
}
