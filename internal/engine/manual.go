package engine

import "context"

// Ack acknowledges the event of r and returns when the broker has confirmed it. If ctx ends
// before the confirmation, the outcome is unknown. Ack is for manual mode only.
func (r *Run) Ack(ctx context.Context) error {
	b := &r.sub.book
	b.lock()
	w, err := b.Claim(r.hold, r, false)
	if err == nil {
		b.Acknowledge(r.hold)
	}
	b.unlock()
	if err != nil {
		return err
	}
	return r.await(ctx, w)
}

// Nack settles the event of r as a failed run with the given cause. It returns when the event
// is delayed, dead-lettered or discarded. Nack is for manual mode only.
func (r *Run) Nack(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errNack
	}
	cause = Inspected(cause)
	b := &r.sub.book
	b.lock()
	w, err := b.Claim(r.hold, r, true)
	interrupted := b.Interrupted()
	b.unlock()
	if err != nil {
		return err
	}
	if isFailure(cause) {
		r.failed(cause)
	}
	r.counted.Store(true) // also without a failure, because the program has chosen the result
	f := result{hold: r.hold, err: cause, manual: true}
	f.Interrupted = interrupted
	r.sub.settle(f, nil)
	return r.await(ctx, w)
}

// await waits for the settlement of the event of r.
func (r *Run) await(ctx context.Context, w <-chan error) (err error) {
	select {
	case err = <-w:
	case <-ctx.Done():
		select {
		case err = <-w:
		default:
			go func() { // the context of r still ends with the settlement
				_ = <-w //nolint:staticcheck // the linter errcheck wants it
				r.finish()
			}()
			return unknown(ctx.Err())
		}
	}
	r.finish()
	return err
}
