package feed

import (
	"context"
	"sync"
)

// A queue hands what was read to who publishes it. It has one of each.
type queue struct {
	changed chan struct{} // something came, or the end did
	taken   chan struct{} // there is room

	mu    sync.Mutex
	items []item
	bytes int
	err   error // the end, io.EOF included
}

// What is kept at most, beside a batch that is being stored, but for one event
// more.
const (
	maxEvents = 4 << 10
	maxBytes  = 8 << 20
)

func newQueue() *queue {
	return &queue{changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// put adds an event when there is room, and reports whether it has.
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

// end says that nothing more comes, and why.
func (q *queue) end(err error) {
	q.mu.Lock()
	q.err = err
	q.mu.Unlock()
	signal(q.changed)
}

// take waits for events and takes all there are. The end comes with the last.
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
