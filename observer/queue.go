package observer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed41896749/eventbus/internal/batch"
)

// A Queue calls the hooks of an [Observer] on a goroutine of its own, which only runs while calls
// are waiting. If the queue is full, calls are dropped and counted, and Failed later gets the
// count. Its methods are safe for concurrent use.
type Queue struct {
	o        Observer
	length   int64
	waiting  atomic.Int64
	dropped  atomic.Int64
	reported int64 // how many of dropped were reported to Failed; used by the queue's goroutine only
	queue    *batch.Group[func()]
}

// ErrDropped means that some hooks were not called because earlier calls were too slow.
var ErrDropped = errors.New("eventbus: the observer is too slow: calls of its hooks were dropped")

// Async returns a Queue for the hooks of o, in which at most length calls wait; a length below 1
// counts as 1. Use it for slow hooks, for example ones that write to a network.
func Async(o Observer, length int) *Queue {
	q := &Queue{o: Safe(o), length: int64(max(length, 1))}
	q.queue = batch.New(int(q.length), batch.AtOnce, q.call)
	return q
}

// Observer returns the Observer to pass to the bus. Its hooks add calls to the queue.
func (q *Queue) Observer() Observer { return wrap(q.o, q.add) }

// Call runs f on the queue's goroutine, after the calls that are already waiting. If the queue is
// full, f is dropped and counted. Call does not recover if f panics.
func (q *Queue) Call(f func()) { q.add(f) }

// Dropped returns how many calls were dropped because the queue was full, including functions
// passed to Call.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Wait waits until the queue is empty and its last call has returned. If ctx ends first, Wait
// returns the cause of ctx.
func (q *Queue) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.queue.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *Queue) add(f func()) {
	if q.waiting.Add(1) > q.length {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.queue.Add(f)
}

func (q *Queue) call(fs []func()) {
	called := 0
	defer func() {
		if called < len(fs) { // fs[called] ended the goroutine, for example with t.FailNow
			q.waiting.Add(-1)
			q.call(fs[called+1:])
		}
	}()
	for _, f := range fs {
		f()
		q.waiting.Add(-1)
		called++
	}
	if n := q.dropped.Load(); n > q.reported && q.o.Failed != nil {
		unreported := n - q.reported
		q.reported = n
		q.o.Failed(Failed{Scope: Observe, Events: int(unreported), Err: ErrDropped})
	}
}
