// Package alarm tells that a moment has come, for who sets one again and again and
// seldom lets it come.
package alarm

import (
	"sync"
	"time"
)

// An Alarm rings once at the moment it was set to last. To put it off, or to stop
// it, touches no timer: what was set before comes first, finds nothing to ring for,
// and sleeps on. A timer that is made, or waited for, anew with each call would be
// the next to run each time, for which the runtime wakes a thread.
//
// One goroutine at a time sets, stops and waits.
type Alarm struct {
	ring  func()
	rings chan struct{}

	mu    sync.Mutex
	timer *time.Timer
	at    time.Time // to ring; zero: not
	next  time.Time // when timer runs; zero: not
}

// New returns an alarm that is not set. When it rings C gets something.
func New() *Alarm {
	a := &Alarm{rings: make(chan struct{}, 1)}
	a.ring = func() { a.rings <- struct{}{} } // there is room: Set takes back what nobody has heard
	return a
}

// Func returns an alarm that is not set. When it rings it calls ring, which must
// not wait: Set and Stop return when it has.
func Func(ring func()) *Alarm { return &Alarm{ring: ring} }

// C is where to wait for it.
func (a *Alarm) C() <-chan struct{} { return a.rings }

// Set lets it ring after d, and not at any earlier moment it was set to.
func (a *Alarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silence()
	a.at = time.Now().Add(d)
	if a.next.IsZero() || a.at.Before(a.next) {
		a.sleep(d)
	}
}

// Stop lets it not ring, until it is set again.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silence()
	a.at = time.Time{}
}

// silence takes back a ring that nobody has heard.
func (a *Alarm) silence() {
	select {
	case <-a.rings:
	default:
	}
}

func (a *Alarm) sleep(d time.Duration) {
	a.next = time.Now().Add(d)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.wake)
	} else {
		a.timer.Reset(d)
	}
}

// wake rings, or sleeps on until it is time.
func (a *Alarm) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = time.Time{}
	if a.at.IsZero() {
		return
	}
	if early := time.Until(a.at); early > 0 {
		a.sleep(early)
		return
	}
	a.at = time.Time{}
	a.ring()
}
