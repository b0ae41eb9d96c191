package redisstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	maxAck   = 1000 // most messages of one XACK
	maxFence = 100  // most deliveries of one call of a script; other clients wait for the script
)

// Ack implements [backend.Source]. With Config.ConfirmAcks it runs ack.lua, which checks
// the holder. Otherwise it sends XACK, which checks neither the holder nor the lease, and
// ignores messages that are settled already.
func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if s.config.ConfirmAcks {
		return s.fenced(ctx, "ack", ackScript, ds)
	}
	return s.settle(ctx, "ack", ds, maxAck, func(part []int) *call {
		args := append(make([]any, 0, 3+len(part)), "xack", s.stream, s.config.Group)
		for _, i := range part {
			args = append(args, entryID(&ds[i].Position))
		}
		return &call{args: args}
	})
}

// Extend implements [backend.Extender].
func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.fenced(ctx, "extend", extendScript, ds)
}

// fenced settles or extends deliveries by a script. The script refuses a delivery unless
// its holder and its delivery count are unchanged.
func (s *source) fenced(ctx context.Context, op string, script *script, ds []*backend.Delivery) error {
	return s.settle(ctx, op, ds, maxFence, func(part []int) *call {
		args := append(make([]any, 0, 2+2*len(part)), s.config.Group, s.name)
		for _, i := range part {
			args = append(args, entryID(&ds[i].Position), ds[i].Token.(*receipt).count)
		}
		return script.call([]string{s.stream}, args...)
	})
}

// Delay implements [backend.Delayer].
func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	soonest := time.Duration(math.MaxInt64)
	lent := make([]*backend.Delivery, len(ds))
	for i := range ds {
		lent[i] = &ds[i].Delivery
		soonest = min(soonest, max(ds[i].For, 0))
	}
	err := s.settle(ctx, "delay", lent, maxFence, func(part []int) *call {
		args := append(make([]any, 0, 2+4*len(part)), s.config.Group, s.name)
		for _, i := range part {
			d := &ds[i]
			args = append(args, entryID(&d.Position), d.Token.(*receipt).count, ceil(max(d.For, 0), time.Microsecond), d.Refund)
		}
		return delayScript.call([]string{s.stream, s.delayed}, args...)
	})
	s.wakeAfter(soonest) //nolint:contextcheck // it wakes the read of another call
	return err
}

// settle splits ds into parts of at most most deliveries. It makes one call for each part,
// by made, and sends all calls in one round trip. made gets the indexes of the deliveries.
// A delivery of another group gets an error.
func (s *source) settle(ctx context.Context, op string, ds []*backend.Delivery, most int, made func(part []int) *call) error {
	if s.closed.Load() {
		return s.failure(op, backend.ErrClosed)
	}
	if len(ds) == 0 {
		return nil
	}
	var errs backend.BatchError
	mine := make([]int, 0, len(ds))
	for i, d := range ds {
		switch r, ok := d.Token.(*receipt); {
		case !ok || r.source.stream != s.stream || r.source.config.Group != s.config.Group:
			errs.Set(i, len(ds), s.failure(op, fmt.Errorf("%w: not a delivery of this group", backend.ErrRefused)))
		case r.source.predatesReset(d), r.source != s && (op != "ack" || s.config.ConfirmAcks): // only the receiver can be the holder
			errs.Set(i, len(ds), s.failure(op, backend.ErrLeaseLost))
		case r.settled && op == "ack": // there is nothing to remove
		default:
			mine = append(mine, i)
		}
	}
	parts := slices.Collect(slices.Chunk(mine, most))
	calls := make([]*call, len(parts))
	for k, part := range parts {
		calls[k] = made(part)
	}
	s.backend.send(ctx, calls...)
	for k, part := range parts {
		if calls[k].script != nil {
			calls[k].array()
		}
		for _, i := range part {
			r := ds[i].Token.(*receipt)
			err := calls[k].settled(r)
			if unsure := errors.Is(err, backend.ErrUnknownOutcome); op == "ack" && (unsure || err == nil) {
				r.unsure.Store(unsure)
			}
			errs.Set(i, len(ds), s.failure(op, err))
		}
	}
	return backend.AsBatchError(errs)
}

var errBodyLost = errors.Join(backend.ErrLeaseLost, errBodyGone)

// settled reads the result of a call for its next delivery. The reply of XACK does not
// matter. The codes of a script are listed in ack.lua, delay.lua and extend.lua. Code 3 means
// that the message has no holder. This is no error if an earlier Ack had no answer and
// r.until has not passed. Then that Ack may have removed the holder. After r.until, another
// member may have settled the message.
func (c *call) settled(r *receipt) error {
	if c.script == nil || c.err != nil {
		return c.err
	}
	switch code := c.integer(); {
	case code == 1, code == 3 && (!r.unsure.Load() || time.Now().After(r.leaseEnd)):
		return backend.ErrLeaseLost
	case code == 2:
		return errBodyLost
	}
	return c.err
}
