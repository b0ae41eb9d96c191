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

// A Recorder keeps the runs of handlers and the events of the observer. Each new record
// makes [Env.Await] check its condition again.
type Recorder struct {
	history history.History // of law.Topic
	again   bool            // handled events may be redelivered; the history leaves these redeliveries out

	mu       sync.Mutex
	runs     []*HandlerRun
	Started  map[string]int  // number of runs that have begun, by name
	done     map[string]int  // number of runs that returned nil, by name
	Handled  map[string]bool // true for each run that returned nil; the key is the name, a space and the event's ID
	members  int
	observed []any
	changed  chan struct{} // closed and replaced by a new channel with each new record
}

// A HandlerRun is one run of a handler.
type HandlerRun struct {
	Name     string
	Delivery eventbus.Delivery // a copy of the delivery that the handler got
	Payload  string            // the payload when the run began
	Began    time.Time
	Ended    time.Time // zero while the handler runs
	Err      error
	Cause    error // context.Cause when the handler returned; nil if the context was not done
}

func (r *Recorder) init(again bool) {
	r.again = again
	r.changed = make(chan struct{})
	r.Started, r.done, r.Handled = map[string]int{}, map[string]int{}, map[string]bool{}
}

// Handler wraps h so that each run is recorded under name. In the history, each call of
// Handler adds a member to the group.
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

// BatchHandler is like Handler for a batch handler. It records one run for each event
// of a batch.
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

// run records that a handler begins with d. The caller calls end when the handler has
// ended.
func (r *Recorder) run(name, group, member string, d *eventbus.Delivery) (end func(err, cause error)) {
	ours := d.Topic == law.Topic && !(r.again && r.hasHandled(name, d.ID))
	e := history.Event{Kind: history.Delivered, ID: d.ID, Group: group, Member: member, Attempt: d.Attempt}
	if ours && r.again && d.Redelivered && !r.hasRun(name, d.ID) { // the broker lost the previous delivery in a failover
		r.history.Record(history.Event{Kind: history.Lost, ID: d.ID, Group: group})
	}
	if ours {
		r.history.Record(e)
	}
	run := r.Begin(name, d)
	return func(err, cause error) {
		if ours && err == nil {
			e.Kind = history.Acked // a success counts as acknowledged, because no law of the bus allows a redelivery after it
			r.history.Record(e)
		}
		r.end(run, err, cause)
	}
}

// errNoReturn is recorded as the error of a handler that panicked or ended its goroutine.
var errNoReturn = fmt.Errorf("the handler did not return")

// Begin records that a handler begins with d, and returns the record.
func (r *Recorder) Begin(name string, d *eventbus.Delivery) *HandlerRun {
	run := &HandlerRun{Name: name, Delivery: *d, Payload: string(d.Payload), Began: time.Now()}
	r.record(func() {
		r.runs = append(r.runs, run)
		r.Started[name]++
	})
	return run
}

func (r *Recorder) end(run *HandlerRun, err, cause error) {
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
	return slices.ContainsFunc(r.runs, func(h *HandlerRun) bool { return h.Name == name && h.Delivery.ID == id })
}

func (r *Recorder) record(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Recorder) observe(e any) { r.record(func() { r.observed = append(r.observed, e) }) }

// observer returns an observer that records all events that it gets.
func (r *Recorder) observer() observer.Observer {
	return observer.Observer{
		Dropped: func(e observer.Dropped) { r.observe(e) },
		Handled: func(e observer.Handled) { r.observe(e) },
		Retried: func(e observer.Retried) { r.observe(e) },
		DeadLettered: func(e observer.DeadLettered) {
			if e.Topic == law.Topic {
				r.history.Record(history.Event{Kind: history.Buried, ID: e.ID, Group: e.Group})
			}
			r.observe(e)
		},
		Discarded: func(e observer.Discarded) { r.observe(e) },
		LeaseLost: func(e observer.LeaseLost) {
			if r.again && e.Topic == law.Topic {
				r.history.Record(history.Event{Kind: history.Lost, ID: e.ID, Group: e.Group})
			}
			r.observe(e)
		},
		Stuck:        func(e observer.Stuck) { r.observe(e) },
		StateChanged: func(e observer.StateChanged) { r.observe(e) },
		Failed:       func(e observer.Failed) { r.observe(e) },
	}
}

// await waits until reached returns true, but at most for d. It reports whether reached
// returned true. It holds r.mu while it calls reached.
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
func (r *Recorder) All(names ...string) []HandlerRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.RunsOf(names...)
}

// RunsOf is like All, but the caller must hold r.mu.
func (r *Recorder) RunsOf(names ...string) (hs []HandlerRun) {
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

// Ended counts the runs under name that have ended. The caller holds r.mu.
func (r *Recorder) Ended(name string) (n int) {
	for _, run := range r.runs {
		if run.Name == name && !run.Ended.IsZero() {
			n++
		}
	}
	return n
}

// Summary returns a text with the last runs and observer events, for the message of a
// failure.
func (r *Recorder) Summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s strings.Builder
	kinds := map[string]int{}
	for _, t := range r.observed {
		kinds[fmt.Sprintf("%T", t)]++
	}
	fmt.Fprintf(&s, "%d runs, observed %v", len(r.runs), kinds)
	for _, h := range r.runs[max(0, len(r.runs)-12):] {
		fmt.Fprintf(&s, "\n  %s: %s attempt %d, error %v", h.Name, h.Delivery.ID, h.Delivery.Attempt, h.Err)
	}
	for _, t := range r.observed[max(0, len(r.observed)-12):] {
		fmt.Fprintf(&s, "\n  observed %T %+v", t, t)
	}
	return s.String()
}
