package bolt

import (
	"runtime"
	"sync"
)

// A writer lets concurrent calls share a transaction, because a transaction waits twice for
// the disk. The first caller commits. Callers that come meanwhile queue, and then the first of
// them commits for all. So a lone caller never waits for others, and there is no goroutine.
type writer struct {
	mu    sync.Mutex // guards all that follows
	queue []*call
	busy  bool // a caller commits, or has its turn
}

// A call is the part of one caller in a transaction.
type call struct {
	run  func(*txn) error
	err  error     // of this call; its caller reads it when the call is done
	turn chan bool // gets true if its caller must commit the queue, or false if the call is done
}

// write returns when commit has run f, together with the functions of other callers.
func (w *writer) write(f func(*txn) error, commit func([]*call)) error {
	c := &call{run: f, turn: make(chan bool, 1)}
	if w.join(c) || <-c.turn {
		runtime.Gosched() // callers that are about to join then join this transaction
		calls := w.take()
		commit(calls)
		for _, other := range calls[1:] { // the first is c
			other.turn <- false
		}
		w.pass()
	}
	return c.err
}

// join queues c, and reports whether its caller must commit.
func (w *writer) join(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, c)
	first := !w.busy
	w.busy = true
	return first
}

func (w *writer) take() []*call {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.queue
	w.queue = nil
	return calls
}

// pass gives the turn to the first caller of the queue.
func (w *writer) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy = len(w.queue) > 0; w.busy {
		w.queue[0].turn <- true // it has room
	}
}
