package engine

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A freer frees keys. An event that was given back holds back its key until it comes again, or would have been due.
// If an operator has settled it, it never comes. So the freer asks from time to time whether the group has settled such
// events.
type freer struct {
	sub     *Subscription
	settler backend.Settler
}

const (
	lookForSettled = 5 * time.Second
	mostBarring    = 100 // events of a topic that one look asks for
)

// start lets the freer look until a drain begins, or the backend says that it cannot tell.
func (x *freer) start(s *Subscription) {
	settler, ok := backend.As[backend.Settler](s.engine.backend)
	if !ok {
		return
	}
	x.sub, x.settler = s, settler
	recur(lookForSettled, func(r *recurring) {
		if x.look() && s.ctx.Err() == nil {
			r.in(lookForSettled)
		}
	})
}

// look asks about the events of all topics. It returns false if asking is of no use.
func (x *freer) look() bool {
	for _, f := range x.sub.feeds.all() {
		a := f.attachment.Load()
		if a == nil || x.sub.ctx.Err() != nil {
			continue
		}
		b := &x.sub.book
		b.lock()
		positions := b.Barring(a.book, mostBarring)
		b.unlock()
		if len(positions) == 0 {
			continue
		}
		settled, err := x.ask(f.topic, positions)
		switch {
		case errors.Is(err, errors.ErrUnsupported), errors.Is(err, backend.ErrDenied), errors.Is(err, backend.ErrClosed):
			return false
		case err != nil || len(settled) != len(positions): // the next look may succeed; until then the events hold back their keys
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
		b.SettledElsewhere(a.book, gone)
		b.unlock()
		x.sub.failing.settled(f.topic, gone)
	}
	return true
}

func (x *freer) ask(topic string, positions []string) (settled []bool, err error) {
	ctx, cancel := context.WithTimeout(x.sub.ctx, lookForSettled)
	defer cancel()
	err = driving("Settled", func() (err error) {
		settled, err = x.settler.Settled(ctx, topic, x.sub.Group, positions)
		return err
	})
	return settled, err
}
