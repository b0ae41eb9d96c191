package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A settledPoller unblocks keys. An event that was given back blocks its key until it is
// redelivered, which never happens if an operator has settled it. The poller therefore checks every
// few seconds whether the group has settled such events.
type settledPoller struct {
	sub     *Subscription
	settler backend.Settler
}

const (
	settledPoll = 5 * time.Second
	maxBlocking = 100 // how many events of a topic one poll asks about
)

// start runs the poller until a drain begins, or until the backend turns out to be unable to
// answer.
func (x *settledPoller) start(s *Subscription) {
	settler, ok := backend.As[backend.Settler](s.engine.backend)
	if !ok {
		return
	}
	x.sub, x.settler = s, settler
	newRecurringJob(settledPoll, func(r *recurringJob) {
		if x.poll() && s.ctx.Err() == nil {
			r.runIn(settledPoll)
		}
	})
}

// poll asks about the events of all topics. It returns false if there is no point in asking again.
func (x *settledPoller) poll() bool {
	for _, c := range x.sub.consumers.all() {
		a := c.attachment.Load()
		if a == nil || x.sub.ctx.Err() != nil {
			continue
		}
		b := &x.sub.ledger
		b.lock()
		positions := b.BlockingPositions(a.holds, maxBlocking)
		b.unlock()
		if len(positions) == 0 {
			continue
		}
		settled, err := x.ask(c.topic, positions)
		switch {
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, backend.ErrDenied), errors.Is(err, backend.ErrClosed):
			return false
		case err != nil || len(settled) != len(positions): // the next poll may succeed; until then the events block their keys
			continue
		}
		var gone []string
		for i, p := range positions {
			if settled[i] {
				gone = append(gone, p)
			}
		}
		if len(gone) == 0 {
			continue
		}
		b.lock()
		b.SettledElsewhere(a.holds, gone)
		b.unlock()
		x.sub.failing.settled(c.topic, gone)
	}
	return true
}

func (x *settledPoller) ask(topic string, positions []string) (settled []bool, err error) {
	ctx, cancel := context.WithTimeout(x.sub.ctx, settledPoll)
	defer cancel()
	err = callDriver("Settled", func() (err error) {
		settled, err = x.settler.Settled(ctx, topic, x.sub.Group, positions)
		return err
	})
	return settled, err
}
