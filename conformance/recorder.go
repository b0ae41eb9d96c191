package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/history"
	"github.com/seed41896749/eventbus/observer"
)

// A recorder keeps what handlers saw and what the observer was told, and wakes
// those who wait for it.
type recorder struct {
	history history.History // of the usual topic
	again   bool            // what was handled may come again, and the history is without that

	mu      sync.Mutex
	runs    []*handling
	started map[string]int  // runs, by name
	done    map[string]int  // runs that returned nil, by name
	handled map[string]bool // name and ID of those
	members int
	told    []any
	changed chan struct{} // closed and replaced with each record
}

// A handling is one run of a handler.
type handling struct {
	name     string
	delivery eventbus.Delivery // a copy, of what the handler got
	payload  string            // of the delivery when the run began
	began    time.Time
	ended    time.Time // zero while it runs
	err      error
	cause    error // with which its context had ended when it returned
}

func (r *recorder) init(again bool) {
	r.again = again
	r.changed = make(chan struct{})
	r.started, r.done, r.handled = map[string]int{}, map[string]int{}, map[string]bool{}
}

// handler returns h with each run recorded under name, as that of a member of
// its own.
func (r *recorder) handler(name, group string, h eventbus.Handler) eventbus.Handler {
	r.mu.Lock()
	r.members++
	member := fmt.Sprint(name, r.members)
	r.mu.Unlock()
	return func(ctx context.Context, d *eventbus.Delivery) (err error) {
		ours := d.Topic == topic && !(r.again && r.hasHandled(name, d.ID))
		e := history.Event{Kind: history.Delivered, ID: d.ID, Group: group, Member: member, Attempt: d.Attempt}
		if ours {
			r.history.Record(e)
		}
		run := r.begin(name, d)
		err = errNoReturn
		defer func() {
			if ours && err == nil {
				e.Kind = history.Acked // in good time: no law of the bus lets it come again
				r.history.Record(e)
			}
			r.end(run, err, context.Cause(ctx))
		}()
		err = h(ctx, d)
		return err
	}
}

// errNoReturn stands for a handler that panicked or ended its goroutine.
var errNoReturn = fmt.Errorf("the handler did not return")

func (r *recorder) begin(name string, d *eventbus.Delivery) *handling {
	run := &handling{name: name, delivery: *d, payload: string(d.Payload), began: time.Now()}
	r.record(func() {
		r.runs = append(r.runs, run)
		r.started[name]++
	})
	return run
}

func (r *recorder) end(run *handling, err, cause error) {
	r.record(func() {
		run.ended, run.err, run.cause = time.Now(), err, cause
		if err == nil {
			r.done[run.name]++
			r.handled[run.name+" "+run.delivery.ID] = true
		}
	})
}

func (r *recorder) hasHandled(name, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handled[name+" "+id]
}

func (r *recorder) record(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) tell(e any) { r.record(func() { r.told = append(r.told, e) }) }

// observer records what it is told.
func (r *recorder) observer() observer.Observer {
	return observer.Observer{
		Handled: func(e observer.Handled) { r.tell(e) },
		Retried: func(e observer.Retried) { r.tell(e) },
		DeadLettered: func(e observer.DeadLettered) {
			if e.Topic == topic {
				r.history.Record(history.Event{Kind: history.Buried, ID: e.ID, Group: e.Group})
			}
			r.tell(e)
		},
		Discarded:    func(e observer.Discarded) { r.tell(e) },
		LeaseLost:    func(e observer.LeaseLost) { r.tell(e) },
		Stuck:        func(e observer.Stuck) { r.tell(e) },
		StateChanged: func(e observer.StateChanged) { r.tell(e) },
		Failed:       func(e observer.Failed) { r.tell(e) },
	}
}

// await waits until reached, for at most d. reached is called with the lock
// held.
func (r *recorder) await(d time.Duration, reached func(*recorder) bool) bool {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		ok, changed := reached(r), r.changed
		r.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-timeout.C:
			return false
		}
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

// all returns copies of the runs under the given names; of all if there is none.
func (r *recorder) all(names ...string) []handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runsOf(names...)
}

// runsOf is all with the lock held.
func (r *recorder) runsOf(names ...string) (hs []handling) {
	for _, run := range r.runs {
		if len(names) == 0 || slices.Contains(names, run.name) {
			hs = append(hs, *run)
		}
	}
	return hs
}

// succeeded counts the runs under names that have returned nil, with the lock
// held.
func (r *recorder) succeeded(names ...string) (n int) {
	for _, name := range names {
		n += r.done[name]
	}
	return n
}

// summary shows the last runs and what was told, for a failure.
func (r *recorder) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s strings.Builder
	fmt.Fprintf(&s, "%d runs", len(r.runs))
	for _, h := range r.runs[max(0, len(r.runs)-12):] {
		fmt.Fprintf(&s, "\n  %s: %s attempt %d, error %v", h.name, h.delivery.ID, h.delivery.Attempt, h.err)
	}
	for _, t := range r.told[max(0, len(r.told)-12):] {
		fmt.Fprintf(&s, "\n  told %T %+v", t, t)
	}
	return s.String()
}
