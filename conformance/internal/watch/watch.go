// Package watch makes sure that the test of a law ends. If the law hangs, the package
// reports which call of the backend has not returned, and where the call waits.
package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/calls"
)

// A Watch makes sure that the test of a law ends. The law runs on a goroutine of its own.
// If the law hangs, the watch reports the reason, ends the law's context and closes the
// law's backends. If the law still does not return, the watch leaves the goroutine behind
// and ends the test.
type Watch struct {
	Law
	name  string // name of the test
	Calls calls.Log

	mu       sync.Mutex
	text     string // text of the first failure
	phase    phase
	began    time.Time
	backends []backend.Backend
}

// A Law has the properties of the law under watch, and the functions that the watch calls.
type Law struct {
	Title     string        // ID, name and promise
	Basic     bool          // a basic law, which gets less time
	FakeClock bool          // the law may run on the fake clock of a synctest bubble
	Lease     time.Duration // the lease that the law uses
	Grace     time.Duration // is added to the time limits of the law and its calls

	Around func(t *testing.T, f func(*testing.T)) // Around wraps the test, for example in a bubble of synctest
	Hung   func()                                 // Hung records that the law hangs
	GiveUp func(w *Watch, why string)             // GiveUp ends the process, because nothing else can end the test
}

// A phase is the progress of the test of a law.
type phase int

const (
	opening  phase = iota // the function New of the suite has not returned
	running               // the law runs
	cleaning              // the law has returned
	left                  // the law was left behind, and reports nothing more
)

// freed is how long a law may take to return after the watch closed its backends.
const freed = time.Second

var errHangs = errors.New("the test hangs")

// New begins the watch over a law whose test begins now. The watch ends with the test.
func New(t *testing.T, l Law) *Watch {
	w := &Watch{Law: l, name: t.Name()}
	if w.Grace > 0 { // the broker has trouble
		w.Calls.Harm()
	}
	deadline, _ := t.Deadline()
	stop := make(chan struct{})
	go w.guard(deadline, stop)
	t.Cleanup(func() { close(stop) }) // the first registered cleanup runs last, so guard runs until the other cleanups end
	return w
}

// limits returns three time limits. receive is how long a Receive may take after its context
// is done. other is how long any other call may take after its context is done, or after its
// deadline, or else after its start. law is how long the whole law may take.
func (w *Watch) limits() (receive, other, law time.Duration) {
	if w.Basic {
		return 4*time.Second + w.Lease + w.Grace, 10*time.Second + w.Grace, time.Minute + w.Grace
	}
	p := w.Patience()
	law = 2*time.Minute + 40*w.Lease + 4*w.Grace
	if w.FakeClock { // waiting on a fake clock takes no time
		law = 100 * w.Lease
	}
	return p, 2 * p, law
}

// Patience is how long the law waits for something that must happen.
func (w *Watch) Patience() time.Duration {
	if w.Basic {
		return 10*time.Second + w.Grace
	}
	return 10*w.Lease + 5*time.Second + w.Grace
}

// Run runs the test of the law, wrapped in Around. It returns when the test has
// ended or was left behind.
func (w *Watch) Run(t *testing.T, test func(context.Context, *testing.T)) {
	defer func() {
		if p := recover(); p != nil { // synctest panics if it finds goroutines that wait for ever
			_, driver := stacks(w.name, w.packages())
			w.Fails(t, fmt.Sprintf("goroutines have not ended with the test: %v\n%s", p, driver))
		}
	}()
	w.Around(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer w.enter(cleaning)
			w.test(ctx, t, test)
		}()
		why := w.await(done)
		if why == "" {
			return
		}
		w.Fails(t, w.Hangs(why, true))
		w.Hung()
		cancel(errHangs)
		w.closeAll()
		select {
		case <-done:
		case <-time.After(freed):
			w.enter(left)
		}
	})
}

// test runs the law, on a goroutine of its own. A panic fails the law.
func (w *Watch) test(ctx context.Context, t *testing.T, test func(context.Context, *testing.T)) {
	labelled(ctx, w.name)
	defer func() {
		if p := recover(); p != nil {
			w.Fails(t, fmt.Sprintf("The test panicked: %v\n%s", p, panicStack()))
		}
	}()
	test(ctx, t)
}

// Opened registers a backend of the law, and returns it with its calls recorded. The first
// call of Opened begins the time that the law may take.
func (w *Watch) Opened(b backend.Backend) backend.Backend {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == opening {
		w.phase, w.began = running, time.Now()
	}
	w.backends = append(w.backends, b)
	return calls.Record(b, &w.Calls)
}

// enter changes the phase to p, unless the phase is already a later one.
func (w *Watch) enter(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = max(w.phase, p)
	if w.began.IsZero() { // the function New of the suite has failed
		w.began = time.Now()
	}
}

func (w *Watch) at() (p phase, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase, w.began
}

// await returns "" when the law has returned, or the reason why it hangs.
func (w *Watch) await(done <-chan struct{}) (why string) {
	tick := time.NewTicker(w.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return ""
		case <-tick.C:
			if why := w.stuck(); why != "" {
				return why
			}
		}
	}
}

// stuck returns the reason why the law hangs, or "".
func (w *Watch) stuck() string {
	p, began := w.at()
	if p == opening {
		return ""
	}
	receive, other, whole := w.limits()
	if w.Calls.Overdue(receive, other) {
		return "a call has not returned"
	}
	if took := time.Since(began); took > whole {
		return fmt.Sprintf("it has not returned after %v", took.Round(time.Second))
	}
	return ""
}

// Hangs returns the report about a law that hangs. If inside is true, the caller runs inside
// Around, so its clock is the clock of the calls, and the report has their times.
func (w *Watch) Hangs(why string, inside bool) string {
	var s strings.Builder
	fmt.Fprintf(&s, "The test hangs: %s.\n", why)
	if p, _ := w.at(); p == opening {
		s.WriteString("New has not returned.\n")
	}
	waits, driver := stacks(w.name, w.packages())
	if waits != "" {
		fmt.Fprintf(&s, "It waits in %s.\n", waits)
	}
	s.WriteString(w.Calls.List(inside || !w.FakeClock))
	if driver != "" {
		fmt.Fprintf(&s, "Goroutines in %s:\n%s", strings.Join(w.packages(), ", "), driver)
	}
	return s.String()
}

func (w *Watch) packages() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.backends {
		for _, p := range packagesOf(b) {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// closeAll closes the backends, so that their calls return.
func (w *Watch) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.backends {
		go func() {
			defer func() { _ = recover() }() // a panic of Close does not matter, because the law has failed
			_ = b.Close()
		}()
	}
}

// Fails fails the test with text. It does nothing if the law was left behind, because the
// law's test has ended then.
func (w *Watch) Fails(t *testing.T, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == left {
		return
	}
	if w.text == "" {
		w.text = text
	}
	t.Errorf("conformance test %s\n%s", w.Title, text)
}

// Reason is the text of the first failure.
func (w *Watch) Reason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// guard calls GiveUp in three cases. First, the law has ended or was left behind, but its
// test does not end. Second, the law takes far too long, for example because a fake clock
// stands still. Third, go test would soon end the run. guard uses the machine's clock.
func (w *Watch) guard(deadline time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	_, _, whole := w.limits()
	limits := map[phase]time.Duration{running: whole + time.Minute, cleaning: 2 * time.Minute, left: 5 * time.Second}
	if w.FakeClock {
		limits[running] = 5 * time.Minute
	}
	seen, since := opening, time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			p, _ := w.at()
			if p != seen {
				seen, since = p, now
			}
			const reserve = 3 * time.Second
			switch limit, ok := limits[p]; {
			case ok && p == running && now.Sub(since) > limit:
				w.GiveUp(w, fmt.Sprintf("it has not returned after %v", limit))
			case ok && now.Sub(since) > limit:
				w.GiveUp(w, fmt.Sprintf("it has not ended %v after its last step", limit))
			case !deadline.IsZero() && time.Until(deadline) < reserve:
				w.GiveUp(w, "the time of go test -timeout is over")
			}
		}
	}
}
