package observer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/seed41896749/eventbus/internal/batch"
)

// A Queue tells an [Observer] from a goroutine of its own, which runs while
// there is something to tell. What exceeds its length is not told but counted,
// and the count told to Failed as soon as there is room. Its methods are safe
// for concurrent use.
type Queue struct {
	o       Observer
	length  int64
	waiting atomic.Int64
	dropped atomic.Int64
	told    int64 // of dropped; only the queue's goroutine knows it
	queue   *batch.Group[func()]
}

// ErrDropped: the observer was too slow, so that events were not told.
var ErrDropped = errors.New("eventbus: the observer is too slow: events were not told")

// Async returns a Queue for at most length events. Its Observer is for hooks that
// are slow, such as those that write to a network.
func Async(o Observer, length int) *Queue {
	q := &Queue{o: Safe(o), length: int64(max(length, 1))}
	q.queue = batch.New(int(q.length), 0, q.tell)
	return q
}

// Observer is what to give to the bus.
func (q *Queue) Observer() Observer { return wrap(q.o, q.add) }

// Dropped is how many events were not told so far.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Wait returns when everything is told, or ctx is done.
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
	for _, f := range fs {
		f()
		q.waiting.Add(-1)
	}
	if n := q.dropped.Load(); n > q.told && q.o.Failed != nil {
		q.o.Failed(Failed{Scope: Observe, Events: int(n - q.told), Err: ErrDropped})
		q.told = n
	}
}
