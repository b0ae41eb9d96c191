package engine

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns lets the topics of a subscription read in turn, because a Receive that waits takes a
// place of the limiter, and often a connection. It gives as many turns as may go on at the same
// time. A turn is one Receive. While a topic waits for its turn or for a place, a Receive that
// has brought nothing for the length of a turn ends. So each topic is read once in a round,
// which takes about a second.
//
// A topic is busy if its last Receive brought events. Busy and other topics get turns
// alternately, in the order in which they ask. A nil *turns is for a subscription with one topic.
type turns struct {
	most int // how many go on at the same time

	mu      sync.Mutex
	topics  int
	open    []*turn
	waiting [2][]*turn // for a turn: topics that are not busy, and busy ones
	last    int        // the index of the line that got a turn last
	hungry  int        // turns that wait for room or for a place
	timer   *time.Timer
}

// A turn is the right to call Receive.
type turn struct {
	busy  bool
	gets  chan struct{} // closed when it begins
	since time.Time     // when Receive was called; zero: it was not yet
	end   func()        // ends the Receive
	ended bool          // end was called
}

const (
	round     = time.Second           // the time in which each topic is read
	leastTurn = 10 * time.Millisecond // the least length of a turn, and the length for a busy topic
)

func newTurns(most int) *turns {
	t := &turns{most: most}
	t.timer = time.AfterFunc(time.Hour, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.hurry()
	})
	t.timer.Stop()
	return t
}

// share sets the number of topics.
func (t *turns) share(topics int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.topics = topics
}

// take waits for a turn. ok is false if ctx is done.
func (t *turns) take(ctx context.Context, busy bool) (own *turn, ok bool) {
	if t == nil {
		return nil, ctx.Err() == nil
	}
	own = &turn{busy: busy, gets: make(chan struct{})}
	t.mu.Lock()
	line := &t.waiting[0]
	if busy {
		line = &t.waiting[1]
	}
	*line = append(*line, own)
	t.give()
	t.hurry()
	t.mu.Unlock()
	select {
	case <-own.gets:
		return own, true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*line = slices.DeleteFunc(*line, func(o *turn) bool { return o == own })
	t.leave(own)
	return nil, false
}

// give begins the next turns. The caller holds mu.
func (t *turns) give() {
	for len(t.open) < t.most {
		next := 1 - t.last
		if len(t.waiting[next]) == 0 {
			next = t.last
		}
		line := t.waiting[next]
		if len(line) == 0 {
			return
		}
		t.last = next
		t.open = append(t.open, line[0])
		close(line[0].gets)
		t.waiting[next] = slices.Delete(line, 0, 1)
	}
}

// begin notes that the Receive of own begins. Calling end ends it.
func (t *turns) begin(own *turn, end func()) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own.since, own.end = time.Now(), end
	t.hurry()
}

// leaves ends the turn own.
func (t *turns) leaves(own *turn) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(own)
}

func (t *turns) leave(own *turn) {
	t.open = slices.DeleteFunc(t.open, func(o *turn) bool { return o == own })
	t.give()
}

// hungers calls wait, which waits for room or for a place in a turn.
func (t *turns) hungers(wait func()) {
	if t == nil {
		wait()
		return
	}
	t.mu.Lock()
	t.hungry++
	t.hurry()
	t.mu.Unlock()
	wait()
	t.mu.Lock()
	t.hungry--
	t.mu.Unlock()
}

// length returns how long the Receive of own may wait while others wait for it. Busy ones are
// short because they ask for many messages. The caller holds mu.
func (t *turns) length(own *turn) time.Duration {
	if own.busy {
		return leastTurn
	}
	return max(round*time.Duration(t.most)/time.Duration(max(t.topics, t.most)), leastTurn)
}

// hurry ends as many of the Receives that have waited for the length of a turn as there are
// others that wait for a turn or a place. It sets the timer for the next one. The caller holds
// mu.
func (t *turns) hurry() {
	need := len(t.waiting[0]) + len(t.waiting[1]) + t.hungry
	now, next := time.Now(), time.Duration(-1)
	for _, o := range t.open {
		if need <= 0 {
			break
		}
		if o.ended {
			need--
			continue
		}
		if o.end == nil {
			continue
		}
		left := t.length(o) - now.Sub(o.since)
		if left <= 0 {
			o.ended = true
			o.end()
			need--
		} else if next < 0 || left < next {
			next = left
		}
	}
	if next >= 0 && need > 0 {
		t.timer.Reset(next)
	}
}
