package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
	"github.com/seed41896749/eventbus/internal/ledger"
	"github.com/seed41896749/eventbus/observer"
)

// A Hold is a message that this member holds until it is settled or its lease is lost.
type Hold = ledger.Hold

// A Run is one call of a handler for one event. It may outlive the event's Hold: a stuck handler
// loses its Hold, and with OnReceive the event is acknowledged before its run.
type Run struct {
	runCtx
	sub     *Subscription
	hold    *Hold
	attempt int
	call    *batchCall  // of the batch handler; nil for a handler of single events
	counted atomic.Bool // failed has counted it, or must not
	hanging uint16      // how many earlier runs of the event are stuck
}

// A batchCall is one call of a batch handler.
type batchCall struct {
	runCtx
	live atomic.Int64 // runs whose context has not ended
}

// newRuns prepares a run for each Hold. The caller holds the ledger's lock.
func (s *Subscription) newRuns(hs []*Hold) []Run {
	runs := make([]Run, len(hs))
	var call *batchCall
	if s.Batch.Handle != nil {
		call = &batchCall{}
		call.prepare(&s.runEnv)
		call.live.Store(int64(len(runs)))
	}
	for i, h := range hs {
		runs[i].sub, runs[i].hold, runs[i].attempt, runs[i].call = s, h, h.Attempt, call
		runs[i].hanging = h.Hanging()
		runs[i].prepare(&s.runEnv)
		h.Run = &runs[i]
	}
	return runs
}

// Hold returns the event's Hold. It is valid until the handler has returned or, in manual mode,
// until settlement.
func (r *Run) Hold() *Hold { return r.hold }

// Delivery returns the delivery. It is valid as long as Hold.
func (r *Run) Delivery() *backend.Delivery { return &r.hold.Delivery }

// Attempt returns the number of the attempt, counting from 1.
func (r *Run) Attempt() int { return r.attempt }

// Redelivered is [ledger.Hold.Redelivered].
func (r *Run) Redelivered() bool { return r.hold.Redelivered() }

// Subscription returns the Subscription that received the event.
func (r *Run) Subscription() *Subscription { return r.sub }

// Context returns the context of the run. In manual mode, settlement ends it.
func (r *Run) Context() *runCtx { return &r.runCtx }

// begin prepares the context of r for a handler call that starts at now.
func (r *Run) begin(now instant) {
	if r.sub.Timeout > 0 {
		r.limit(now.Plus(r.sub.Timeout))
	}
}

// failed counts r as failed with err, unless it has been counted already: a run that was given up
// at its timeout may return later.
func (r *Run) failed(err error) {
	if !r.counted.Swap(true) {
		r.sub.counts.failed(err)
	}
}

// endRun ends the context of a run with cause.
func (s *Subscription) endRun(run any, cause error) {
	r, ok := run.(*Run)
	if !ok {
		return
	}
	late := errors.Is(cause, ledger.ErrTimeout)
	if late {
		cause = s.timeout
	}
	r.cancel(cause)
	if r.call != nil && (r.call.live.Add(-1) == 0 || late || errors.Is(cause, ErrShutdown)) {
		r.call.cancel(cause)
	}
}

// aboutHold describes the event of h and its run, which may be nil.
func (s *Subscription) aboutHold(h *Hold, run any) observer.About {
	about := observer.About{Topic: consumerOf(h).name, Group: s.Group, ID: h.Delivery.ID, Position: h.Delivery.Position, Attempt: h.Attempt}
	if r, ok := run.(*Run); ok && r != nil {
		about.Tag, about.Attempt = r.tagged(), r.attempt
	}
	return about
}

func (r *Run) about() observer.About {
	return observer.About{
		Topic: consumerOf(r.hold).name, Group: r.sub.Group, ID: r.hold.Delivery.ID, Position: r.hold.Delivery.Position,
		Attempt: r.attempt, Tag: r.tagged(),
	}
}

// aboutLive is like aboutHold, but includes the type of the event. h must not be released during
// the call, because a released Hold has no headers.
func (s *Subscription) aboutLive(h *Hold, run any) observer.About {
	about := s.aboutHold(h, run)
	about.Type = typeOf(&h.Delivery.Message)
	return about
}

// typeOf returns the type of the event in m.
func typeOf(m *backend.Message) string { return m.Headers.Get(cloudevent.Type) }

// Ack acknowledges the event of r, and returns when the broker has confirmed it. If ctx ends before
// that, the outcome is unknown. Ack is for manual mode only.
func (r *Run) Ack(ctx context.Context) error {
	b := &r.sub.ledger
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

// Nack settles the event of r as a failed run with the given cause. It returns when the event has
// been delayed, dead-lettered or discarded. Nack is for manual mode only.
func (r *Run) Nack(ctx context.Context, cause error) error {
	if cause == nil {
		cause = errNack
	}
	cause = Inspected(cause)
	b := &r.sub.ledger
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
	r.counted.Store(true) // even if it isn't a failure, because the program has chosen the result
	f := result{hold: r.hold, err: cause, manual: true}
	f.Interrupted = interrupted
	r.sub.settle(f, nil)
	return r.await(ctx, w)
}

// await waits until the event of r is settled.
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
