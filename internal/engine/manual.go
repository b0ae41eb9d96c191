package engine

import "context"

// Ack acknowledges h and returns when the broker has confirmed. Manual mode
// only.
func (h *Hold) Ack(ctx context.Context) error {
	s := h.read.sub
	w, err := s.sched.claimed(h, false)
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
	w, err := s.sched.claimed(h, true)
	if err != nil {
		return err
	}
	s.failed(h, cause)
	return h.await(ctx, w)
}

// claimed gives the caller the right to settle h, as failed or not.
func (d *scheduler) claimed(h *Hold, failed bool) (*wait, error) {
	d.mu.Lock()
	defer d.unlock()
	w, err := d.claim(h)
	if err == nil {
		h.failed = failed
	}
	return w, err
}

// failed settles a claimed h as a failed run.
func (s *Subscription) failed(h *Hold, cause error) {
	s.counts.failures.Add(1)
	v := s.Policy.decide(run{hold: h, err: cause, interrupted: s.sched.isInterrupted()})
	s.carryOut(h, v, cause)
}

func (d *scheduler) isInterrupted() bool {
	d.mu.Lock()
	defer d.unlock()
	return d.interrupted
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
