package feed

import (
	"context"
	"sync"
)

// A queue passes items from one reader to one publisher.
type queue struct {
	changed chan struct{} // receives a value after an item was put, or the input has ended
	taken   chan struct{} // receives a value after items were taken

	mu    sync.Mutex
	items []item
	bytes int
	err   error // the reason for which the input ended, such as io.EOF; nil: it has not ended
}

// Bounds of the queue, which one item may exceed.
const (
	maxEvents = 4 << 10
	maxBytes  = 8 << 20
)

func newQueue() *queue {
	return &queue{changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// put waits until there is room, and adds an item. It returns false if ctx ended before.
func (q *queue) put(ctx context.Context, it item) bool {
	for {
		q.mu.Lock()
		full := len(q.items) >= maxEvents || q.bytes >= maxBytes
		if !full {
			q.items = append(q.items, it)
			q.bytes += len(it.event.Payload) + it.event.Headers.Size()
		}
		q.mu.Unlock()
		if !full {
			signal(q.changed)
			return true
		}
		select {
		case <-q.taken:
		case <-ctx.Done():
			return false
		}
	}
}

// end records err, the reason for which the input ended.
func (q *queue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	signal(q.changed)
}

// take waits until there are items, and takes all of them. If the input has ended, it also
// returns the reason.
func (q *queue) take(ctx context.Context) ([]item, error) {
	for {
		q.mu.Lock()
		items, err := q.items, q.err
		q.items, q.bytes = nil, 0
		q.mu.Unlock()
		signal(q.taken)
		if len(items) > 0 || err != nil {
			return items, err
		}
		select {
		case <-q.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
