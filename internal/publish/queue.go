package publish

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A queue has the slots, and the calls that wait because no slot was free. While its
// goroutine runs, every call goes through the queue. So writes are few and large, and the
// next call of a caller does not overtake an earlier one that it has left under way.
type queue struct {
	publisher *Publisher
	serving   sync.WaitGroup // the goroutine

	mu      sync.Mutex
	writing []context.CancelFunc // of the callers that write themselves, by slot
	free    []int                // slots
	waiting []*call
	served  bool // the goroutine is there
}

// A call waits in the queue, whose lock guards the state.
type call struct {
	ctx       context.Context // of the caller
	until     time.Time       // the caller waits no longer; zero: no bound
	msgs      []*backend.Message
	droppable *droppable // DropOldest
	state     state
	written   chan struct{} // has a value once the call is written and err is set
	err       error
}

type state uint8

const (
	queued state = iota
	underWay
	ended
	left // its caller does not wait for the result
)

// end tells the caller the result.
func (c *call) end(err error) {
	c.state, c.err = ended, err
	c.written <- struct{}{}
}

// defaultSlots is the number of concurrent writes if the backend states none.
const defaultSlots = 4

func (q *queue) init(p *Publisher) {
	q.publisher = p
	slots := p.limits.Publishers
	if slots == 0 {
		slots = defaultSlots
	}
	q.writing = make([]context.CancelFunc, max(slots, 0))
	for slot := range q.writing {
		q.free = append(q.free, slot)
	}
}

// take returns a slot for a caller, if one is free.
func (q *queue) take() (slot int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.served || len(q.free) == 0 {
		return 0, false
	}
	return q.pop(), true
}

func (q *queue) pop() (slot int) {
	last := len(q.free) - 1
	slot, q.free = q.free[last], q.free[:last]
	return slot
}

// hold notes how to end the write of the caller that has the slot.
func (q *queue) hold(slot int, cancel context.CancelFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing[slot] = cancel
	if q.publisher.done.Err() != nil {
		cancel()
	}
}

func (q *queue) release(slot int, cancel context.CancelFunc) {
	cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writing[slot] = nil
	q.free = append(q.free, slot)
	q.serve()
}

// stop ends the writes of callers.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, cancel := range q.writing {
		if cancel != nil {
			cancel()
		}
	}
}

func (q *queue) join(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	q.serve()
}

// serve starts the goroutine if there is something for it to do.
func (q *queue) serve() {
	if !q.served && len(q.waiting) > 0 && len(q.free) > 0 {
		q.served = true
		slot := q.pop()
		q.serving.Go(func() { q.run(slot) })
	}
}

// leave ends the wait of a caller for a reason, and returns the outcome of its call.
func (q *queue) leave(c *call, reason error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch c.state {
	case ended:
		return c.err
	case queued:
		at := slices.Index(q.waiting, c)
		q.waiting = slices.Delete(q.waiting, at, at+1)
		return notSent(reason)
	}
	c.state = left
	return unknown(reason)
}
