package engine

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Waiters are the calls whose callers wait. A caller is told to leave when its time
// is up, and all are when the publisher ends. There is one timer for all of them,
// seldom touched, as nearly every call ends long before its time. A caller that waited
// by a timer of its own, and for the end of the publisher, would lock what all share.
type waiters struct {
	timeout time.Duration // of one call; 0: none

	mu    sync.Mutex // taken before a call's, and nothing else is taken after it
	first *call
	timer *time.Timer
	next  time.Time // when timer runs, no later than the first time is up; zero: not
	over  error     // why nobody waits any more
}

// enter lets c be told when its time is up.
func (w *waiters) enter(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over != nil {
		c.giveUp(w.over)
		return
	}
	c.waits, c.after = true, w.first
	if c.after != nil {
		c.after.before = c
	}
	w.first = c
	if w.timeout > 0 && (w.next.IsZero() || c.until.Before(w.next)) {
		w.sleep(c.until)
	}
}

// leave is for a caller that waits no more.
func (w *waiters) leave(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(c)
}

func (w *waiters) remove(c *call) {
	if !c.waits {
		return
	}
	if c.before != nil {
		c.before.after = c.after
	} else {
		w.first = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	}
	c.before, c.after, c.waits = nil, nil, false
}

func (w *waiters) sleep(until time.Time) {
	w.next = until
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(until), w.wake)
	} else {
		w.timer.Reset(time.Until(until))
	}
}

// pause is between two looks at who waits, so that many whose times are up one after
// another are not looked at for each of them.
const pause = time.Millisecond

// wake tells those whose time is up.
func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.next = time.Time{}
	var next time.Time
	for c := w.first; c != nil; {
		after := c.after
		switch {
		case !c.until.After(now):
			w.remove(c)
			c.giveUp(fmt.Errorf("after %v: %w", w.timeout, context.DeadlineExceeded))
		case next.IsZero() || c.until.Before(next):
			next = c.until
		}
		c = after
	}
	if soon := now.Add(pause); !next.IsZero() && next.Before(soon) {
		next = soon
	}
	if !next.IsZero() {
		w.sleep(next)
	}
}

// end tells all to leave, and whoever comes later.
func (w *waiters) end(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = reason
	if w.timer != nil {
		w.timer.Stop()
	}
	for c := w.first; c != nil; c = w.first {
		w.remove(c)
		c.giveUp(reason)
	}
}
