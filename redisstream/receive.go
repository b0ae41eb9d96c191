package redisstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	sweepEvery = 500 * time.Millisecond // longest time between two runs of take.lua
	maxSweep   = 100                    // most deliveries of one run of take.lua; other clients wait for the run
	grace      = 900 * time.Millisecond // longest wait of a read for its answer after its context is done
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
	s.asked = time.Now()
	ds, err := s.receive(ctx, limit)
	s.failed = err != nil
	s.note(ds, err)
	return ds, s.failure("receive", err)
}

// note remembers the highest position received, and whether a reply was lost. After a lost
// reply, the next run of take.lua gives back its messages. Otherwise they would be
// redelivered only after their lease, behind newer messages.
func (s *source) note(ds []backend.Delivery, err error) {
	for i := range ds {
		if ds[i].Position > string(s.high) {
			s.high = append(s.high[:0], ds[i].Position...)
		}
	}
	if errors.Is(err, backend.ErrUnknownOutcome) && s.lost == 0 {
		s.lost, s.after = s.number, ""
		s.sweepBy(time.Time{})
	}
}

func (s *source) receive(ctx context.Context, limit int) ([]backend.Delivery, error) {
	if s.isDue() {
		ds, err := s.takeBack(ctx, limit)
		if err != nil || len(ds) > 0 {
			return ds, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ds, err := s.takeNew(ctx, limit, !s.failed)
	if errors.Is(err, backend.ErrGone) && !s.closed.Load() && ctx.Err() == nil {
		// The stream or the group was deleted during the wait. It may exist again.
		ds, err = s.takeNew(ctx, limit, false)
	}
	return ds, err
}

// takeBack receives redelivered messages, by take.lua. If a run delivers nothing and asks for
// another run, takeBack runs the script again. Such a run had too many delayed messages
// to sort all of them, or gave back messages of a lost reply.
func (s *source) takeBack(ctx context.Context, limit int) (ds []backend.Delivery, err error) {
	for more := true; more && len(ds) == 0 && ctx.Err() == nil; {
		if ds, more, err = s.runTake(ctx, min(limit, maxSweep)); err != nil {
			s.sweepBy(time.Time{})
		}
	}
	return ds, err
}

// runTake runs take.lua one time. more means that the script asks for another run without a
// wait.
func (s *source) runTake(ctx context.Context, most int) (ds []backend.Delivery, more bool, err error) {
	start := time.Now()
	c := takeScript.call([]string{s.stream, s.delayed, sweptKey(s.delayed)},
		s.config.Group, s.name, most, millis(s.config.Lease), s.turn, s.after, replyBytes, s.number, s.lost, s.high)
	s.sweepFrom(start.Add(sweepEvery))
	var wait time.Duration
	err = s.ask(ctx, c, func(p *parser) {
		p.arrayOf(4)
		wait = time.Duration(p.integer()) * time.Microsecond
		s.turn = p.integer()
		s.after = string(p.bulk())
		ds = s.batch.deliveries(p, s, true)
	})
	if err != nil {
		return nil, false, err
	}
	s.number++
	if s.after == "" {
		s.lost = 0
	}
	if len(ds) > 0 {
		s.sweepBy(time.Time{}) // more messages may be due
	}
	s.sweepBy(start.Add(wait)) // the script knows of no message that is due before
	return ds, wait == 0, nil
}

// takeNew receives new messages, by XREADGROUP. If wait is set and there are none, it waits
// for them until the next run of take.lua.
func (s *source) takeNew(ctx context.Context, limit int, wait bool) (ds []backend.Delivery, err error) {
	args := append(make([]any, 0, 11), "xreadgroup", "group", s.config.Group, s.name, "count", s.batch.enough(limit))
	if wait {
		args = append(args, "block", s.setWaits(true))
		defer s.setWaits(false)
	}
	args = append(args, "streams", s.stream, ">")
	err = s.ask(ctx, &call{args: args}, func(p *parser) { ds = s.batch.read(p, s) })
	if err != nil {
		return nil, err
	}
	return ds, nil
}

// ask makes a call on the connection of the member, and calls read with a parser of the
// reply. The reply is valid until the next ask, which uses its memory again.
func (s *source) ask(ctx context.Context, c *call, read func(*parser)) error {
	c.reply = s.batch.reply.next()
	s.reader.send(ctx, grace, c)
	s.batch.reply = c.reply
	if c.err != nil {
		return c.err
	}
	p := parser{rest: c.reply.raw}
	read(&p)
	if err := p.end(); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	return nil
}
