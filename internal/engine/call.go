package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/seed41896749/eventbus/backend"
)

// A call is one Publish on its way. Its lock is what lets its caller leave at any
// moment and know what can have been written.
type call struct {
	msgs  []*backend.Message
	own   context.Context             // of its caller, while that writes itself
	woken chan struct{}               // has something when c has ended, or its caller is to leave
	until time.Time                   // no repeat after this; zero: as long as the caller waits
	again *backoff.ExponentialBackOff // nil until something is repeated

	before, after *call // among the waiters, which guard them
	waits         bool  // is among them

	mu      sync.Mutex
	ended   bool
	reason  error // why the caller is to leave
	left    bool  // the caller has gone
	writing bool  // what waits is being written
	states  []state
	errs    []error // the last of each message
	refused []bool  // by the last try of each message it is certainly not stored
}

// A state of one message of a call.
type state uint8

const (
	waiting state = iota
	stored
	failed
)

// end tells the caller that nothing more will be done. The caller of end holds mu.
func (c *call) end() {
	c.ended = true
	c.wake()
}

// giveUp tells the caller to leave.
func (c *call) giveUp(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = reason
	c.wake()
}

func (c *call) wake() {
	select {
	case c.woken <- struct{}{}:
	default: // it wakes already
	}
}

// wait returns when the caller was woken, or the error of its context.
func (c *call) wait(ctx context.Context) error {
	done := ctx.Done()
	if done == nil {
		<-c.woken
		return nil
	}
	select {
	case <-c.woken:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// leave ends the wait. It gives c up, if that has not ended, and returns what the
// caller is told: that for a reason, or else for the one why it was to leave.
func (c *call) leave(reason error) (left bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.woken: // as the next call may get it
	default:
	}
	if c.ended {
		return false, nil
	}
	c.left = true
	return true, c.outcome(cmp.Or(reason, c.reason))
}

// outcome is what a caller is told who leaves before the end, in one with leaving:
// what is stored later has no Position to tell. The caller of outcome holds mu.
func (c *call) outcome(reason error) error {
	errs := make([]error, len(c.msgs))
	for i, was := range c.errs {
		switch {
		case c.states[i] == stored:
		case c.states[i] == failed:
			errs[i] = was
		case c.writing || was != nil && !backend.NotStored(was):
			errs[i] = unknown(reason)
		case was != nil:
			errs[i] = notSent(fmt.Errorf("%w, last: %w", reason, was))
		default:
			errs[i] = notSent(reason)
		}
	}
	return backend.AsBatchError(errs)
}

// outcomeAfter is what a message's last error says together with the one before:
// what may have been stored once may still be there, however certainly a later
// try failed.
func outcomeAfter(before, err error) error {
	if err == nil || before == nil || backend.NotStored(before) || !backend.NotStored(err) {
		return err
	}
	return unknown(fmt.Errorf("%w, then: %w", before, err))
}

// keepsOrder reports whether repeating cannot put a message behind a later one
// of the same key: one that is stored or, if it is not itself by that try, may be.
func (c *call) keepsOrder() bool {
	there, perhaps := map[string]bool{}, map[string]bool{} // of the keys of later ones
	for i := len(c.msgs) - 1; i >= 0; i-- {
		key, certainlyNot := c.msgs[i].Key, c.refused[i]
		switch {
		case key == "":
			continue
		case c.states[i] == waiting && (there[key] || certainlyNot && perhaps[key]):
			return false
		case c.states[i] == stored:
			there[key] = true
		}
		if !certainlyNot {
			perhaps[key] = true
		}
	}
	return true
}
