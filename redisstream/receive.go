package redisstream

import (
	"context"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	sweepEvery = 500 * time.Millisecond
	maxSweep   = 100                    // deliveries of one run of the script: others wait for as long as it runs
	grace      = 900 * time.Millisecond // what a read has to bring what is on its way, when its context is done
)

// Receive implements [backend.Source].
func (s *source) Receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if err := s.unusable(); err != nil {
		return nil, s.failure("receive", err)
	}
	if limit <= 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.batch.loan.Return()
	ds, err := s.receive(ctx, limit)
	s.failed = err != nil
	return ds, s.failure("receive", err)
}

func (s *source) receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	if s.isDue() {
		ds, err := s.takeBack(ctx, limit)
		if err != nil || len(ds) > 0 {
			return ds, err
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ds, err := s.takeNew(ctx, limit, !s.failed)
	if isGone(err) && !s.closed.Load() {
		// What was waited on was destroyed; it may have been created again.
		ds, err = s.takeNew(ctx, limit, false)
	}
	return ds, err
}

// takeBack takes what comes back, in as many runs of the script as that needs.
func (s *source) takeBack(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	for more := true; more && len(ds) < limit && ctx.Err() == nil; {
		if ds, more, err = s.runTake(ctx, ds, min(limit-len(ds), maxSweep)); err != nil {
			return ds, err
		}
	}
	return ds, nil
}

// runTake runs the script once, puts what it takes behind ds, and reports whether
// more may be due.
func (s *source) runTake(ctx context.Context, ds []backend.Delivery, most int) (_ []backend.Delivery, more bool, err error) {
	c := &call{script: &takeScript}
	c.args = append(takeScript.args(s.stream, s.delayed, sweptKey(s.delayed)), s.config.Group, s.name, most, millis(s.config.Lease), s.turn, s.after)
	s.reader.send(ctx, grace, c)
	s.batch.reply = c.reply
	if c.err != nil {
		return ds, false, c.err
	}
	wait, err := s.readTaken()
	if err != nil {
		return ds, false, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	taken := len(s.batch.entries)
	next := time.Now().Add(sweepEvery)
	switch {
	case taken > 0:
		next = time.Time{} // there may be more
	case wait >= 0:
		next = earlier(next, time.Now().Add(wait))
	}
	s.mu.Lock()
	s.sweep = next
	s.mu.Unlock()
	return s.batch.deliveries(s, ds), taken == most || wait == 0, nil // it looks at so many delayed, of which some may be settled
}

// readTaken reads the reply of the script, and when to run it again.
func (s *source) readTaken() (wait time.Duration, err error) {
	p := s.batch.reply.parse()
	p.arrayOf(4)
	wait = time.Duration(p.integer()) * time.Millisecond
	s.turn = p.integer()
	s.after = string(p.bulk())
	s.batch.readTaken(&p)
	return wait, p.end()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// takeNew takes what is new, and waits for it until the script is to be run.
func (s *source) takeNew(ctx context.Context, limit int, wait bool) ([]backend.Delivery, error) {
	c := &call{}
	c.args = append(make([]any, 0, 11), "xreadgroup", "group", s.config.Group, s.name, "count", s.batch.enough(limit))
	if wait {
		c.args = append(c.args, "block", s.wait())
		defer s.wake()
	}
	c.args = append(c.args, "streams", s.stream, ">")
	if wait {
		if err := s.learnID(ctx); err != nil {
			return nil, err
		}
	}
	s.reader.send(ctx, grace, c)
	s.batch.reply = c.reply
	if c.err != nil {
		return nil, c.err
	}
	p := s.batch.reply.parse()
	s.batch.readNew(&p)
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	return s.batch.deliveries(s, nil), nil
}
