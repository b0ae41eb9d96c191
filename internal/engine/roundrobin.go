package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/internal/wait"
)

// A roundRobin makes the topics of a subscription read in turn, because a waiting Receive occupies
// a slot of the limiter and often a connection. A turn is one Receive. While another topic is
// waiting for its turn or for a slot, a Receive ends once it has returned nothing for the length of
// a turn. That way each topic is read once per round, which takes about a second.
//
// A topic is busy if its last Receive returned events. A quarter of the turns is reserved for busy
// topics and passes quickly from one to the next, so busy topics don't wait for idle ones, nor idle
// ones for them. A subscription with one topic has a nil *roundRobin.
type roundRobin struct {
	mu      sync.Mutex
	topics  int
	idle    turnQueue
	busy    turnQueue
	waiters int // turns that are waiting for the ledger or for a slot
	timer   *time.Timer
}

// A turnQueue holds the current turns, of which there are at most limit, and those that are waiting.
type turnQueue struct {
	limit   int
	open    []*turn
	waiting wait.Queue[*turn, struct{}]
}

// A turn is the right to call Receive.
type turn struct {
	busy  bool
	since time.Time // when Receive was called; zero if it hasn't been yet
	end   func()    // ends the Receive
	ended bool      // end has been called
}

const (
	round     = time.Second           // the time in which each topic is read once
	leastTurn = 10 * time.Millisecond // the shortest turn, which is also the turn of a busy topic
)

// newRoundRobin returns a roundRobin in which at most limit topics read at the same time.
func newRoundRobin(limit int) *roundRobin {
	t := &roundRobin{busy: turnQueue{limit: max(limit/4, 1)}}
	t.idle.limit = max(limit-t.busy.limit, 1)
	t.timer = time.AfterFunc(time.Hour, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.preempt()
	})
	t.timer.Stop()
	return t
}

// setTopics sets the number of topics.
func (t *roundRobin) setTopics(topics int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.topics = topics
}

// topicCount returns the number of topics, which is 1 for a nil *roundRobin.
func (t *roundRobin) topicCount() int {
	if t == nil {
		return 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.topics
}

// acquire waits for a turn. ok is false if ctx is done.
func (t *roundRobin) acquire(ctx context.Context, busy bool) (own *turn, ok bool) {
	if t == nil {
		return nil, ctx.Err() == nil
	}
	own = &turn{busy: busy}
	t.mu.Lock()
	q := t.queue(own)
	w := q.waiting.Join(own)
	q.grant()
	t.preempt()
	t.mu.Unlock()
	select {
	case <-w.Granted:
		return own, true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !q.waiting.Leave(w) { // it was granted just now
		q.release(own)
	}
	return nil, false
}

func (t *roundRobin) queue(own *turn) *turnQueue {
	if own.busy {
		return &t.busy
	}
	return &t.idle
}

// grant starts the next turns.
func (q *turnQueue) grant() {
	q.waiting.Admit(func(own *turn) (struct{}, bool) {
		if len(q.open) >= q.limit {
			return struct{}{}, false
		}
		q.open = append(q.open, own)
		return struct{}{}, true
	})
}

// release ends a turn, and starts the next one.
func (q *turnQueue) release(own *turn) {
	q.open = slices.DeleteFunc(q.open, func(o *turn) bool { return o == own })
	q.grant()
}

// begin records that the Receive of own is starting, and that end cuts it short.
func (t *roundRobin) begin(own *turn, end func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own.since, own.end = time.Now(), end
	t.preempt()
}

// release ends the turn own.
func (t *roundRobin) release(own *turn) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue(own).release(own)
}

// whileWaiting calls wait, which waits within a turn for the ledger or for a slot.
func (t *roundRobin) whileWaiting(wait func()) {
	if t == nil {
		wait()
		return
	}
	t.mu.Lock()
	t.waiters++
	t.preempt()
	t.mu.Unlock()
	wait()
	t.mu.Lock()
	t.waiters--
	t.mu.Unlock()
}

// length returns how long the Receive of own may wait while others are waiting for it. Busy topics
// have short turns, because they ask for many messages. The caller holds mu.
func (t *roundRobin) length(own *turn) time.Duration {
	if own.busy {
		return leastTurn
	}
	return max(round*time.Duration(t.idle.limit)/time.Duration(max(t.topics, t.idle.limit)), leastTurn)
}

// preempt cuts short one Receive for each turn that is waiting, among the Receives that have waited
// for the length of a turn. It sets the timer for the next check. The caller holds mu.
func (t *roundRobin) preempt() {
	now := time.Now()
	next := t.preemptIn(&t.busy, now)
	if other := t.preemptIn(&t.idle, now); next == 0 || other > 0 && other < next {
		next = other
	}
	if next > 0 {
		t.timer.Reset(next)
	}
}

// preemptIn is preempt for one queue. It returns the time until the next check, or zero if nobody
// is waiting. The caller holds mu.
func (t *roundRobin) preemptIn(q *turnQueue, now time.Time) (next time.Duration) {
	need := q.waiting.Len() + t.waiters
	for _, o := range q.open {
		if need <= 0 {
			return 0
		}
		switch left := t.length(o) - now.Sub(o.since); {
		case o.ended:
			need--
		case o.end == nil: // it is waiting for the ledger or for a slot
		case left <= 0:
			o.ended = true
			o.end()
			need--
		case next == 0 || left < next:
			next = left
		}
	}
	return next
}
