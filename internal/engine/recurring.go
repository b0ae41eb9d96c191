package engine

import (
	"context"
	"time"
)

// A recurring job runs when its timer fires, and not after end was called. It has no
// goroutine while it waits. One run goes on at a time. A run plans the next one, by in.
type recurring struct {
	ctx   context.Context // done after end was called
	stop  context.CancelFunc
	timer *time.Timer
	turn  chan struct{} // a lock: it has one value, which a run takes and puts back
}

// recur returns a job that runs f when the duration first has passed.
func recur(first time.Duration, f func(*recurring)) *recurring {
	r := &recurring{turn: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.timer = time.AfterFunc(first, func() {
		<-r.turn
		defer func() { r.turn <- struct{}{} }()
		if r.ctx.Err() == nil {
			f(r)
		}
	})
	r.turn <- struct{}{} // only now may a run begin, because it uses r.timer
	return r
}

// in plans the next run, in place of the run planned before.
func (r *recurring) in(d time.Duration) { r.timer.Reset(d) }

// end lets no run begin any more, cancels the context of a run under way, and waits for it.
func (r *recurring) end() {
	r.stop()
	<-r.turn
	r.timer.Stop()
	r.turn <- struct{}{}
}
