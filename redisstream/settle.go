package redisstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxAck   = 1000 // ids of one XACK
	maxFence = 100  // deliveries of one call of a fenced script: others wait for as long as it runs
)

// Ack implements [backend.Source]. XACK looks neither at the holder nor at the
// lease, and forgets what was settled before. A script looks at the holder where
// acknowledgements are to be confirmed.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if s.config.ConfirmAcks {
		return s.settleFenced(ctx, "ack", &ackScript, ds)
	}
	at := func(i int) *backend.Delivery { return ds[i] }
	return s.settle(ctx, "ack", len(ds), maxAck, at, func(part []int, args []any) *call {
		args = append(args, "xack", s.stream, s.config.Group)
		for _, i := range part {
			args = append(args, &ds[i].Position)
		}
		return &call{args: args}
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	soonest := time.Duration(-1)
	at := func(i int) *backend.Delivery { return &ds[i].Delivery }
	err := s.settle(ctx, "delay", len(ds), maxFence, at, func(part []int, _ []any) *call {
		c := s.fenced(&delayScript, []string{s.stream, s.delayed}, 4*len(part))
		for _, i := range part {
			d, refund := &ds[i], 0
			if d.Refund {
				refund = 1
			}
			wait := max(d.For, 0)
			if soonest < 0 || wait < soonest {
				soonest = wait
			}
			c.args = append(c.args, &d.Position, d.Token.(*receipt).attempt.Load(), micros(wait), refund)
		}
		return c
	})
	voidRefunds(ds, err)
	if soonest >= 0 {
		s.dueIn(soonest) //nolint:contextcheck // what it wakes is not of this call
	}
	return err
}

// voidRefunds makes sure that no receipt is used again whose Delay with a Refund
// has an unknown outcome: this member may receive the message with the same
// attempt, and would give it back unawares.
func voidRefunds(ds []backend.Delayed, err error) {
	if err == nil {
		return
	}
	for i := range ds {
		if r, ok := ds[i].Token.(*receipt); ok && ds[i].Refund && errors.Is(backend.ErrorAt(err, i), backend.ErrUnknownOutcome) {
			r.attempt.Store(noReceipt)
		}
	}
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.settleFenced(ctx, "extend", &extendScript, ds)
}

// settleFenced settles deliveries by a script that is told position and attempt of each.
func (s *source) settleFenced(ctx context.Context, op string, script *script, ds []*backend.Delivery) error {
	at := func(i int) *backend.Delivery { return ds[i] }
	return s.settle(ctx, op, len(ds), maxFence, at, func(part []int, _ []any) *call {
		c := s.fenced(script, []string{s.stream}, 2*len(part))
		for _, i := range part {
			c.args = append(c.args, &ds[i].Position, ds[i].Token.(*receipt).attempt.Load())
		}
		return c
	})
}

// fenced begins a call of a script that compares holder and attempt, with room
// for n arguments.
func (s *source) fenced(script *script, keys []string, n int) *call {
	args := append(make([]any, 0, 5+len(keys)+n), script.args(keys...)...)
	return &call{args: append(args, s.config.Group, s.name), script: script}
}

// settle makes calls for n deliveries, so many in one, all in one round trip. A call
// may use the memory of args, which is empty.
func (s *source) settle(ctx context.Context, op string, n, most int, at func(int) *backend.Delivery, make1 func(part []int, args []any) *call) error {
	if err := s.unusable(); err != nil || n == 0 {
		return s.failure(op, err)
	}
	var errs itemErrors
	err := s.backend.with(ctx, func(w *wire) error {
		mine := w.mine[:0]
		for i := range n {
			r, ok := at(i).Token.(*receipt)
			switch {
			case !ok || r.source.stream != s.stream || r.source.config.Group != s.config.Group:
				errs.set(i, n, s.failure(op, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)))
			case r.settled && op == "ack": // there is nothing to remove
			default:
				mine = append(mine, i)
			}
		}
		w.mine = mine
		var calls []*call
		for rest := mine; len(rest) > 0; rest = rest[min(len(rest), most):] {
			calls = append(calls, make1(rest[:min(len(rest), most)], w.args[:0]))
			w.args = nil // the next call has its own
		}
		if len(calls) == 0 {
			return nil
		}
		w.send(ctx, 0, calls...)
		for k, c := range calls {
			s.readSettled(op, c, mine[k*most:min((k+1)*most, len(mine))], n, &errs)
		}
		w.args = calls[0].args
		clear(w.args) // they refer to deliveries
		return nil
	})
	if err != nil {
		return s.failure(op, err)
	}
	return backend.AsBatchError(errs)
}

var errBodyLost = errors.Join(backend.ErrLeaseLost, errBodyGone)

// readSettled reads what became of the deliveries of one call.
func (s *source) readSettled(op string, c *call, part []int, n int, errs *itemErrors) {
	if c.err == nil && c.script == nil {
		return // XACK returns how many there were, which does not matter
	}
	p := parser{rest: c.reply.raw}
	if c.err == nil {
		p.arrayOf(len(part))
	}
	for _, i := range part {
		became := c.err
		if became == nil {
			switch p.integer() {
			case 1:
				became = backend.ErrLeaseLost
			case 2:
				became = errBodyLost
			}
			if p.err != nil {
				became = fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, p.err)
			}
		}
		if became != nil {
			errs.set(i, n, s.failure(op, became))
		}
	}
}

// itemErrors are made when the first item fails.
type itemErrors []error

func (e *itemErrors) set(i, n int, err error) {
	if *e == nil {
		*e = make([]error, n)
	}
	(*e)[i] = err
}
