package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxAck   = 1000 // ids of one XACK
	maxFence = 100  // deliveries of one call of a script: others wait for as long as it runs
)

// Ack implements [backend.Source]. XACK looks neither at the holder nor at the
// lease, and forgets what was settled before. A script looks at the holder where
// acknowledgements are to be confirmed.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if s.config.ConfirmAcks {
		return s.fenced(ctx, "ack", ackScript, ds)
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

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.fenced(ctx, "extend", extendScript, ds)
}

// fenced settles deliveries by a script that compares holder and count.
func (s *source) fenced(ctx context.Context, op string, script *script, ds []*backend.Delivery) error {
	at := func(i int) *backend.Delivery { return ds[i] }
	return s.settle(ctx, op, len(ds), maxFence, at, func(part []int, _ []any) *call {
		args := append(make([]any, 0, 2+2*len(part)), s.config.Group, s.name)
		for _, i := range part {
			args = append(args, &ds[i].Position, ds[i].Token.(*receipt).count)
		}
		return script.call([]string{s.stream}, args...)
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	soonest := time.Duration(-1)
	at := func(i int) *backend.Delivery { return &ds[i].Delivery }
	err := s.settle(ctx, "delay", len(ds), maxFence, at, func(part []int, _ []any) *call {
		args := append(make([]any, 0, 2+4*len(part)), s.config.Group, s.name)
		for _, i := range part {
			d, wait, refund := &ds[i], max(ds[i].For, 0), 0
			if d.Refund {
				refund = 1
			}
			if soonest < 0 || wait < soonest {
				soonest = wait
			}
			args = append(args, &d.Position, d.Token.(*receipt).count, ceil(wait, time.Microsecond), refund)
		}
		return delayScript.call([]string{s.stream, s.delayed}, args...)
	})
	if soonest >= 0 {
		s.dueIn(soonest) //nolint:contextcheck // what it wakes is not of this call
	}
	return err
}

// settle makes calls for n deliveries, so many in one, all in one round trip. A call
// may use the memory of args, which is empty.
func (s *source) settle(ctx context.Context, op string, n, most int, at func(int) *backend.Delivery, made func(part []int, args []any) *call) error {
	if err := s.unusable(); err != nil || n == 0 {
		return s.failure(op, err)
	}
	var errs itemErrors
	err := s.backend.with(ctx, func(w *wire) error {
		w.mine = w.mine[:0]
		for i := range n {
			switch r, ok := at(i).Token.(*receipt); {
			case !ok || r.source.stream != s.stream || r.source.config.Group != s.config.Group:
				errs.set(i, n, s.failure(op, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)))
			case r.settled && op == "ack": // there is nothing to remove
			default:
				w.mine = append(w.mine, i)
			}
		}
		if len(w.mine) == 0 {
			return nil
		}
		var calls []*call
		for part := range slices.Chunk(w.mine, most) {
			calls = append(calls, made(part, w.args[:0]))
			w.args = nil // the next call has its own
		}
		w.send(ctx, 0, calls...)
		for k, c := range calls {
			p := parser{rest: c.reply.raw}
			if c.err == nil && c.script != nil {
				p.array()
			}
			for _, i := range w.mine[k*most : min((k+1)*most, len(w.mine))] {
				errs.set(i, n, s.failure(op, c.settled(&p)))
			}
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

// settled reads what became of the next delivery of the call. XACK returns how many
// there were, which does not matter.
func (c *call) settled(p *parser) error {
	if c.err != nil || c.script == nil {
		return c.err
	}
	code := p.integer()
	switch {
	case p.err != nil:
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, p.err)
	case code == 1:
		return backend.ErrLeaseLost
	case code == 2:
		return errBodyLost
	}
	return nil
}

// itemErrors are made when the first item fails.
type itemErrors []error

func (e *itemErrors) set(i, n int, err error) {
	if err != nil && *e == nil {
		*e = make([]error, n)
	}
	if err != nil {
		(*e)[i] = err
	}
}
