package publish

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A queue has the slots, and the calls that wait because no slot was free. While its
// goroutine runs, every call goes through the queue, so that writes are few and large. This
// also keeps the order of a caller that stopped waiting for a call under way: its next call
// is stored later.
type queue struct {
	publisher *Publisher
	serving   sync.WaitGroup // the goroutine

	mu      sync.Mutex
	writing []context.CancelFunc // by slot; ends a write without the queue
	free    []int                // the free slots
	waiting []*call
	served  bool // the goroutine runs
}

// A call is one try of a caller through the queue. The queue's lock guards its state.
type call struct {
	ctx       context.Context // the context of the caller
	until     time.Time       // when the caller stops waiting; zero: no bound
	msgs      []*backend.Message
	droppable *droppable // nil without DropOldest
	state     state
	written   chan struct{} // gets a value when err is set
	err       error         // the result of the try
}

type state uint8

const (
	queued state = iota
	underWay
	ended
	left // under way, but the caller no longer waits
)

// end passes the result to the caller.
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

// hold registers cancel, with which stop ends the write of the caller that has the slot.
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

// stop cancels the writes of all callers that write without the queue.
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

// serve starts the goroutine of the queue if calls wait, a slot is free, and the goroutine
// does not run.
func (q *queue) serve() {
	if !q.served && len(q.waiting) > 0 && len(q.free) > 0 {
		q.served = true
		slot := q.pop()
		q.serving.Go(func() { q.run(slot) })
	}
}

// leave ends the wait of a caller before the result of c, for the given reason. It returns
// the error of c: not sent if c was queued, and an unknown outcome if c is under way.
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
