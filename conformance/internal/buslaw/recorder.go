package buslaw

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/conformance/internal/history"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/observer"
)

// A Recorder keeps the runs of handlers and the events of the observer. Each record wakes
// the tests in [Env.Await].
type Recorder struct {
	history history.History // of law.Topic
	again   bool            // redeliveries of a handled event are allowed and not in the history

	mu      sync.Mutex
	runs    []*Handling
	Started map[string]int  // runs, by name
	done    map[string]int  // runs that returned nil, by name
	Handled map[string]bool // true for name, space and event ID of each run that returned nil
	members int
	told    []any
	changed chan struct{} // closed and replaced with each record
}

// A Handling is one run of a handler.
type Handling struct {
	Name     string
	Delivery eventbus.Delivery // a copy of the delivery that the handler got
	Payload  string            // of the delivery when the run began
	Began    time.Time
	Ended    time.Time // zero while it runs
	Err      error
	Cause    error // context.Cause when the handler returned; nil if the context was not done
}

func (r *Recorder) init(again bool) {
	r.again = again
	r.changed = make(chan struct{})
	r.Started, r.done, r.Handled = map[string]int{}, map[string]int{}, map[string]bool{}
}

// Handler returns h with each run recorded under name. Each call of Handler stands for
// another member in the history.
func (r *Recorder) Handler(name, group string, h eventbus.Handler) eventbus.Handler {
	member := r.member(name)
	return func(ctx context.Context, d *eventbus.Delivery) (err error) {
		end := r.run(name, group, member, d)
		err = errNoReturn
		defer func() { end(err, context.Cause(ctx)) }()
		err = h(ctx, d)
		return err
	}
}

// BatchHandler is Handler for a handler of batches. Each event of a batch is a run.
func (r *Recorder) BatchHandler(name, group string, h eventbus.BatchHandler) eventbus.BatchHandler {
	member := r.member(name)
	return func(ctx context.Context, ds []*eventbus.Delivery) (errs []error) {
		ends := make([]func(err, cause error), len(ds))
		for i, d := range ds {
			ends[i] = r.run(name, group, member, d)
		}
		returned := false
		defer func() {
			cause := context.Cause(ctx)
			for i, end := range ends {
				switch {
				case !returned:
					end(errNoReturn, cause)
				case errs == nil:
					end(nil, cause)
				default:
					end(errs[i], cause)
				}
			}
		}()
		errs = h(ctx, ds)
		returned = true
		return errs
	}
}

func (r *Recorder) member(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
	return fmt.Sprint(name, r.members)
}

// run records that a handler begins with d. The caller calls end with the result.
func (r *Recorder) run(name, group, member string, d *eventbus.Delivery) (end func(err, cause error)) {
	ours := d.Topic == law.Topic && !(r.again && r.hasHandled(name, d.ID))
	e := history.Event{Kind: history.Delivered, ID: d.ID, Group: group, Member: member, Attempt: d.Attempt}
	if ours && r.again && d.Redelivered && !r.hasRun(name, d.ID) { // a failover lost the delivery before this one
		r.history.Record(history.Event{Kind: history.Lost, ID: d.ID, Group: group})
	}
	if ours {
		r.history.Record(e)
	}
	run := r.Begin(name, d)
	return func(err, cause error) {
		if ours && err == nil {
			e.Kind = history.Acked // no law of the bus allows a redelivery after a success
			r.history.Record(e)
		}
		r.end(run, err, cause)
	}
}

// errNoReturn stands for a handler that panicked or ended its goroutine.
var errNoReturn = fmt.Errorf("the handler did not return")

// Begin records that a handler begins with d.
func (r *Recorder) Begin(name string, d *eventbus.Delivery) *Handling {
	run := &Handling{Name: name, Delivery: *d, Payload: string(d.Payload), Began: time.Now()}
	r.record(func() {
		r.runs = append(r.runs, run)
		r.Started[name]++
	})
	return run
}

func (r *Recorder) end(run *Handling, err, cause error) {
	r.record(func() {
		run.Ended, run.Err, run.Cause = time.Now(), err, cause
		if err == nil {
			r.done[run.Name]++
			r.Handled[run.Name+" "+run.Delivery.ID] = true
		}
	})
}

func (r *Recorder) hasHandled(name, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Handled[name+" "+id]
}

// hasRun reports whether a run with this event has begun under name.
func (r *Recorder) hasRun(name, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.runs, func(h *Handling) bool { return h.Name == name && h.Delivery.ID == id })
}

func (r *Recorder) record(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Recorder) tell(e any) { r.record(func() { r.told = append(r.told, e) }) }

// observer returns an observer that records its events.
func (r *Recorder) observer() observer.Observer {
	return observer.Observer{
		Dropped: func(e observer.Dropped) { r.tell(e) },
		Handled: func(e observer.Handled) { r.tell(e) },
		Retried: func(e observer.Retried) { r.tell(e) },
		DeadLettered: func(e observer.DeadLettered) {
			if e.Topic == law.Topic {
				r.history.Record(history.Event{Kind: history.Buried, ID: e.ID, Group: e.Group})
			}
			r.tell(e)
		},
		Discarded: func(e observer.Discarded) { r.tell(e) },
		LeaseLost: func(e observer.LeaseLost) {
			if r.again && e.Topic == law.Topic {
				r.history.Record(history.Event{Kind: history.Lost, ID: e.ID, Group: e.Group})
			}
			r.tell(e)
		},
		Stuck:        func(e observer.Stuck) { r.tell(e) },
		StateChanged: func(e observer.StateChanged) { r.tell(e) },
		Failed:       func(e observer.Failed) { r.tell(e) },
	}
}

// await waits until reached returns true, for at most d. It holds the lock while it calls
// reached.
func (r *Recorder) await(d time.Duration, reached func(*Recorder) bool) bool {
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

// Count returns how many runs have begun.
func (r *Recorder) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

// All returns copies of the runs under the given names. Without a name it returns all.
func (r *Recorder) All(names ...string) []Handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.RunsOf(names...)
}

// RunsOf is All for a caller that holds r.mu.
func (r *Recorder) RunsOf(names ...string) (hs []Handling) {
	for _, run := range r.runs {
		if len(names) == 0 || slices.Contains(names, run.Name) {
			hs = append(hs, *run)
		}
	}
	return hs
}

// Succeeded counts the runs under names that have returned nil. The caller holds r.mu.
func (r *Recorder) Succeeded(names ...string) (n int) {
	for _, name := range names {
		n += r.done[name]
	}
	return n
}

// Summary shows the last runs and observer events, for a failure.
func (r *Recorder) Summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s strings.Builder
	kinds := map[string]int{}
	for _, t := range r.told {
		kinds[fmt.Sprintf("%T", t)]++
	}
	fmt.Fprintf(&s, "%d runs, told %v", len(r.runs), kinds)
	for _, h := range r.runs[max(0, len(r.runs)-12):] {
		fmt.Fprintf(&s, "\n  %s: %s attempt %d, error %v", h.Name, h.Delivery.ID, h.Delivery.Attempt, h.Err)
	}
	for _, t := range r.told[max(0, len(r.told)-12):] {
		fmt.Fprintf(&s, "\n  told %T %+v", t, t)
	}
	return s.String()
}
