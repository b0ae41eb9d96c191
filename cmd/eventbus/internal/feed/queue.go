package feed

import (
	"context"
	"sync"
)

// A queue passes items from one reader to one publisher.
type queue struct {
	changed chan struct{} // signals an item or the end
	taken   chan struct{} // signals room

	mu    sync.Mutex
	items []item
	bytes int
	err   error // why the input ended, io.EOF included
}

// Bounds of the queue, which one item may exceed.
const (
	maxEvents = 4 << 10
	maxBytes  = 8 << 20
)

func newQueue() *queue {
	return &queue{changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// put waits for room and adds an event. It reports false if ctx ended first.
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

// end closes the queue with the reason.
func (q *queue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	signal(q.changed)
}

// take waits for events and takes all of them. The last ones come with the reason of the
// end.
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
