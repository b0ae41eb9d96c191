package observer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed41896749/eventbus/internal/batch"
)

// A Queue calls the hooks of an [Observer] on its own goroutine, which runs while
// occurrences wait. If the queue is full, occurrences are dropped and counted, and the
// queue later calls Failed with the count. Its methods are safe for concurrent use.
type Queue struct {
	o       Observer
	length  int64
	waiting atomic.Int64
	dropped atomic.Int64
	told    int64 // how many of dropped were reported to Failed; used by the queue's goroutine only
	queue   *batch.Group[func()]
}

// ErrDropped means that hooks were not called for some occurrences, because earlier calls
// of hooks were too slow.
var ErrDropped = errors.New("eventbus: the observer is too slow: events were not told")

// Async returns a Queue that calls the hooks of o. At most length occurrences wait in it;
// a length below 1 counts as 1. Async suits slow hooks, such as writes to a network.
func Async(o Observer, length int) *Queue {
	q := &Queue{o: Safe(o), length: int64(max(length, 1))}
	q.queue = batch.New(int(q.length), batch.AtOnce, q.tell)
	return q
}

// Observer returns the Observer to pass to the bus. Its hooks add occurrences to the queue.
func (q *Queue) Observer() Observer { return wrap(q.o, q.add) }

// Call makes the queue's goroutine call f after the calls that wait already. If the queue
// is full, f is dropped and counted. Call does not recover from a panic of f.
func (q *Queue) Call(f func()) { q.add(f) }

// Dropped returns how many occurrences, and functions given to Call, the queue has dropped
// because it was full.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Wait waits until the queue is empty and its last call has returned. If ctx ends before
// that, Wait returns the cause of ctx.
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

func (q *Queue) tell(fs []func()) {
	called := 0
	defer func() {
		if called < len(fs) { // fs[called] has ended the goroutine, such as by t.FailNow
			q.waiting.Add(-1)
			q.tell(fs[called+1:])
		}
	}()
	for _, f := range fs {
		f()
		q.waiting.Add(-1)
		called++
	}
	if n := q.dropped.Load(); n > q.told && q.o.Failed != nil {
		untold := n - q.told
		q.told = n
		q.o.Failed(Failed{Scope: Observe, Events: int(untold), Err: ErrDropped})
	}
}
