package engine

import (
	"context"
	"time"
)

// A recurring job runs again and again, until it is ended. It runs by a timer, so that it
// has no goroutine while it waits.
type recurring struct {
	ctx   context.Context // done with end
	stop  context.CancelFunc
	timer *time.Timer
	turn  chan struct{} // holds one value, which a run has while it lasts
}

// recur runs f after first, and then each time after the duration that f returns.
func recur(first time.Duration, f func(context.Context) (next time.Duration)) *recurring {
	r := &recurring{turn: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.timer = time.AfterFunc(first, func() {
		<-r.turn
		defer func() { r.turn <- struct{}{} }()
		if r.ctx.Err() != nil {
			return
		}
		if next := f(r.ctx); r.ctx.Err() == nil {
			r.timer.Reset(next)
		}
	})
	r.turn <- struct{}{} // now the timer is set
	return r
}

// end lets no run begin any more, cancels the context of the one under way, and waits for
// its end.
func (r *recurring) end() {
	r.stop()
	<-r.turn
	r.timer.Stop()
	r.turn <- struct{}{}
}
