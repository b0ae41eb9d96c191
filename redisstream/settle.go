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
	maxAck   = 1000 // messages of one XACK
	maxFence = 100  // deliveries of one call of a script, for which other clients wait
)

// Ack implements [backend.Source]. With Config.ConfirmAcks it runs ack.lua, which checks the
// holder. Otherwise it sends XACK, which checks neither the holder nor the lease, and ignores
// messages that are already settled.
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

// fenced settles or extends deliveries with a script, which refuses a delivery unless its holder
// and its delivery count are unchanged.
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
	s.wakeAfter(soonest) //nolint:contextcheck // the read that it wakes belongs to another call
	return err
}

// settle splits ds into parts of at most limit deliveries, makes one call for each part with
// newCall, and sends all calls in one round trip. newCall gets the indexes of the deliveries. A
// delivery of another group gets an error.
func (s *source) settle(ctx context.Context, op string, ds []*backend.Delivery, limit int, newCall func(part []int) *call) error {
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
		case r.source.predatesReset(d), r.source != s && (op != "ack" || s.config.ConfirmAcks): // only the member that received it can be the holder
			errs.Set(i, len(ds), s.failure(op, backend.ErrLeaseLost))
		case r.settled && op == "ack": // nothing is left to remove
		default:
			mine = append(mine, i)
		}
	}
	parts := slices.Collect(slices.Chunk(mine, limit))
	calls := make([]*call, len(parts))
	for k, part := range parts {
		calls[k] = newCall(part)
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

// settled reads the result of a call for its next delivery. The reply to XACK does not matter.
// For the codes of scripts see ack.lua, delay.lua and extend.lua. Code 3 means that the message
// has no holder. That is not an error if an earlier Ack got no reply and r.leaseEnd has not passed,
// because then that Ack may have removed the holder. After r.leaseEnd, another member may have
// settled the message.
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
