package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/internal/wait"
)

// A roundRobin lets the topics of a subscription read in turn, because a waiting Receive occupies a
// slot of the limiter, and often a connection. A turn is one Receive. While a topic waits for its
// turn or for a slot, a Receive ends once it has brought nothing for the length of a turn. That way
// each topic is read once in a round, which takes about a second.
//
// A topic is busy if its last Receive brought events. Busy topics have a quarter of the turns to
// themselves, and these pass quickly from one to the next: busy topics don't wait for idle ones,
// nor idle ones for them. A subscription with one topic has a nil *roundRobin.
type roundRobin struct {
	mu      sync.Mutex
	topics  int
	idle    turnQueue
	busy    turnQueue
	waiters int // turns that wait for the ledger or for a slot
	timer   *time.Timer
}

// A turnQueue holds the turns that go on at the same time, at most most, and those that wait.
type turnQueue struct {
	most    int
	open    []*turn
	waiting wait.Queue[*turn, struct{}]
}

// A turn is the right to call Receive.
type turn struct {
	busy  bool
	since time.Time // when Receive was called; zero: it was not yet
	end   func()    // ends the Receive
	ended bool      // end was called
}

const (
	round     = time.Second           // the time in which each topic is read
	leastTurn = 10 * time.Millisecond // the least length of a turn, and the length for a busy topic
)

// newRoundRobin lets at most most topics read at the same time.
func newRoundRobin(most int) *roundRobin {
	t := &roundRobin{busy: turnQueue{most: max(most/4, 1)}}
	t.idle.most = max(most-t.busy.most, 1)
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

// topicCount returns the number of topics; 1 for a nil *roundRobin.
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
	if !q.waiting.Leave(w) { // granted just now
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

// grant begins the next turns.
func (q *turnQueue) grant() {
	q.waiting.Admit(func(own *turn) (struct{}, bool) {
		if len(q.open) >= q.most {
			return struct{}{}, false
		}
		q.open = append(q.open, own)
		return struct{}{}, true
	})
}

// release ends a turn, and begins the next one.
func (q *turnQueue) release(own *turn) {
	q.open = slices.DeleteFunc(q.open, func(o *turn) bool { return o == own })
	q.grant()
}

// begin records that the Receive of own begins, and that end cuts it short.
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

// whileWaiting calls wait, which waits, within a turn, for the ledger or for a slot.
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

// length returns how long the Receive of own may wait while others wait for it. Turns of busy
// topics are short, because they ask for many messages. The caller holds mu.
func (t *roundRobin) length(own *turn) time.Duration {
	if own.busy {
		return leastTurn
	}
	return max(round*time.Duration(t.idle.most)/time.Duration(max(t.topics, t.idle.most)), leastTurn)
}

// preempt cuts short as many Receives that have waited for the length of a turn as there are others
// that wait for a turn or a slot. It sets the timer for the next one. The caller holds mu.
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

// preemptIn is preempt for one queue. It returns after which time to look again; zero: nobody
// waits. The caller holds mu.
func (t *roundRobin) preemptIn(q *turnQueue, now time.Time) (next time.Duration) {
	need := q.waiting.Len() + t.waiters
	for _, o := range q.open {
		if need <= 0 {
			return 0
		}
		switch left := t.length(o) - now.Sub(o.since); {
		case o.ended:
			need--
		case o.end == nil: // it waits for the ledger or for a slot
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
