package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"

	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed41896749/eventbus/backend"
)

// commit runs the calls in one transaction. After a call that has failed and written, commit
// starts again without that call, because a transaction cannot undo part of its writes.
func (s *store) commit(calls []*call) {
	s.open.RLock()
	defer s.open.RUnlock()
	for {
		bad := -1
		err := s.guard(func() (err error) {
			bad, err = s.tryCommit(calls)
			return err
		})
		if bad < 0 {
			for _, c := range calls {
				if c.err == nil {
					c.err = err
				}
			}
			return
		}
		calls = append(calls[:bad:bad], calls[bad+1:]...)
	}
}

// tryCommit runs the calls in one transaction, and returns an error that concerns all of them. If a
// call has failed and written, try returns its index, and the transaction had no effect.
func (s *store) tryCommit(calls []*call) (bad int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return -1, beginError(err)
	}
	defer func() {
		if s.damage.Load() == nil { // a commit that was interrupted cannot be rolled back
			_ = tx.Rollback() // after a commit there is nothing to roll back
		}
	}()
	var r spaceBudget
	wrote := false
	for i, c := range calls {
		t := newTxn(tx, &r)
		if c.err = withClass(cmp.Or(c.run(t), t.err)); c.err != nil && t.wrote {
			return i, nil
		}
		wrote = wrote || t.wrote
	}
	if !wrote {
		return -1, nil
	}
	if err := s.guard(tx.Commit); err != nil {
		return -1, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
	}
	return -1, nil
}

// withClass gives err a class if it has none: the call certainly had no effect.
func withClass(err error) error {
	if err == nil || backend.Class(err) != nil {
		return err
	}
	return unavailable(err)
}

// beginError returns the error of a transaction that has not begun. The last backend on a store
// closes it, so the backend of the call is closed.
func beginError(err error) error {
	if errors.Is(err, bbolterrors.ErrDatabaseNotOpen) {
		return backend.ErrClosed
	}
	return unavailable(err)
}

// A groupCommit lets concurrent calls share a transaction, because every transaction waits for the
// disk twice. The first caller commits; callers that arrive in the meantime queue, and the first of
// them then commits for all. A lone caller never waits for others, and no goroutine is needed.
type groupCommit struct {
	mu    sync.Mutex // guards all that follows
	queue []*call
	busy  bool // a caller commits, or has its turn
}

// A call is the part of one caller in a transaction.
type call struct {
	run  func(*txn) error
	err  error     // of this call; its caller reads it when the call is done
	lead chan bool // gets true if its caller must commit the queue, or false if the call is done
}

// write returns when commit has run f, together with the functions of other callers.
func (w *groupCommit) write(f func(*txn) error, commit func([]*call)) error {
	c := &call{run: f, lead: make(chan bool, 1)}
	if w.enqueue(c) || <-c.lead {
		runtime.Gosched() // callers that are about to join then join this transaction
		calls := w.takeQueue()
		commit(calls)
		for _, other := range calls[1:] { // the first is c
			other.lead <- false
		}
		w.passLead()
	}
	return c.err
}

// enqueue queues c, and reports whether its caller must commit.
func (w *groupCommit) enqueue(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	first := !w.busy
	w.busy = true
	return first
}

func (w *groupCommit) takeQueue() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.queue
	w.queue = nil
	return calls
}

// passLead gives the turn to the first caller of the queue.
func (w *groupCommit) passLead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy = len(w.queue) > 0; w.busy {
		w.queue[0].lead <- true // it has room
	}
}
