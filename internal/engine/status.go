package engine

import (
	"sync"

	"github.com/seed41896749/eventbus/observer"
)

// status has the state of a subscription, and the error that caused it, if any.
type status struct {
	sub *Subscription

	mu    sync.Mutex
	state observer.State
	err   error
}

func (t *status) init(s *Subscription) { t.sub, t.state = s, observer.Starting }

// set changes the state and tells the observer. Closed is final, and after Draining only
// Closed follows. Degraded and Limited do not end a
// pause, and Limited does not end Degraded.
func (t *status) set(to observer.State, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(to, err)
}

func (t *status) change(to observer.State, err error) {
	from := t.state
	switch {
	case from == to, from == observer.Closed, from == observer.Draining && to != observer.Closed:
		return
	case from == observer.Paused && to == observer.Degraded,
		(from == observer.Paused || from == observer.Degraded) && to == observer.Limited:
		return
	}
	t.state, t.err = to, err
	tell(t.sub.notifier.later.StateChanged, observer.StateChanged{
		Topic: t.sub.Topic, Group: t.sub.Group, From: from, To: to, Err: err,
	})
}

// leave changes the given state to Running. In another state it does nothing.
func (t *status) leave(state observer.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == state {
		t.change(observer.Running, nil)
	}
}

// State returns the state of s, and the error that caused it, if any.
func (s *Subscription) State() (observer.State, error) {
	s.status.mu.Lock()
	defer s.status.mu.Unlock()
	return s.status.state, s.status.err
}
