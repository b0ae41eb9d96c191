package engine

import "context"

// Ack acknowledges h and returns when the broker has confirmed it. If ctx ends before the
// confirmation, the outcome is unknown. Ack is for manual mode only.
func (h *Hold) Ack(ctx context.Context) error {
	s := h.read.sub
	w, err := h.claimed(false)
	if err != nil {
		return err
	}
	s.settler.acks.Add(h)
	s.settler.acks.Flush()
	return h.await(ctx, w)
}

// Nack settles h as a failed run with the given cause. It returns when h is delayed,
// dead-lettered or discarded. Nack is for manual mode only.
func (h *Hold) Nack(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errNack
	}
	cause = Inspected(cause)
	s := h.read.sub
	w, err := h.claimed(true)
	if err != nil {
		return err
	}
	s.runner.failed(h, cause)
	return h.await(ctx, w)
}

// claimed gives the caller the right to settle h. Only one caller gets this right. failed
// means that the caller settles h as a failed run.
func (h *Hold) claimed(failed bool) (wait, error) {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	w, err := d.claim(h)
	if err == nil {
		h.failed = failed
	}
	return w, err
}

// failed settles h, for which the caller has the right, as a failed run.
func (r *runner) failed(h *Hold, cause error) {
	r.sub.counts.failures.Add(1)
	v := r.sub.Policy.decide(run{hold: h, err: cause, interrupted: h.isInterrupted()})
	r.sub.settler.carryOut(h, v, cause)
}

func (h *Hold) isInterrupted() bool {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	return d.interrupted
}

// await waits for the settlement of h.
func (h *Hold) await(ctx context.Context, w wait) (err error) {
	select {
	case err = <-w:
	case <-ctx.Done():
		select {
		case err = <-w:
		default:
			return unknown(ctx.Err())
		}
	}
	h.ctx.finish() // free does the same, but perhaps after await returns
	return err
}
