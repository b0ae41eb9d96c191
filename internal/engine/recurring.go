package engine

import (
	"context"
	"time"
)

// A recurring job runs again and again until end is called. A timer starts each run, so the
// job has no goroutine while it waits.
type recurring struct {
	ctx   context.Context // done after end was called
	stop  context.CancelFunc
	timer *time.Timer
	turn  chan struct{} // a lock: it has one value, which a run takes and puts back
}

// recur runs f when the duration first has passed, and after each run again when the
// duration has passed that f returned.
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
	r.turn <- struct{}{} // only now may a run begin, because it uses r.timer
	return r
}

// end lets no run begin any more, cancels the context of a run under way, and waits for it.
func (r *recurring) end() {
	r.stop()
	<-r.turn
	r.timer.Stop()
	r.turn <- struct{}{}
}
