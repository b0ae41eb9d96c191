package conformance

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
)

// A watch sees to it that the test of a law ends. The law runs on a goroutine of its
// own. If it hangs, the watch says why, ends its context and closes its backends. If
// it still does not return, the watch leaves it behind.
type watch struct {
	run   *runner
	law   law
	name  string // of the test
	lease time.Duration
	grace time.Duration
	calls calls

	mu       sync.Mutex
	text     string // of the first failure
	phase    phase
	began    time.Time
	backends []backend.Backend
}

// A phase is how far the test of a law is.
type phase int

const (
	opening  phase = iota // New has not returned
	running               // the law runs
	cleaning              // the law has returned
	left                  // the law was left behind, and may say nothing more
)

// freed is how long a law may take to return when its backends are closed.
const freed = time.Second

var errHangs = errors.New("the law hangs")

func newWatch(t *testing.T, r *runner, l law) *watch {
	w := &watch{run: r, law: l, name: t.Name(), lease: r.leaseNow(), grace: r.graceOf(l)}
	if w.grace > 0 { // the broker has trouble
		w.calls.harm()
	}
	deadline, _ := t.Deadline()
	stop := make(chan struct{})
	go w.guard(deadline, stop)
	t.Cleanup(func() { close(stop) }) // the last cleanup of the test
	return w
}

// limits returns how long a Receive may take after its context is done, any other call
// after its deadline or its begin, and the law.
func (w *watch) limits() (receive, other, law time.Duration) {
	if w.law.basic() {
		return 4*time.Second + w.lease + w.grace, 10*time.Second + w.grace, time.Minute + w.grace
	}
	p := w.patience()
	law = 2*time.Minute + 40*w.lease + 4*w.grace
	if w.run.fakeClock { // where waiting costs nothing
		law = 100 * w.lease
	}
	return p, 2 * p, law
}

// patience is how long the law waits for what must come.
func (w *watch) patience() time.Duration {
	if w.law.basic() {
		return 10*time.Second + w.grace
	}
	return 10*w.lease + 5*time.Second + w.grace
}

// around tests the law within Suite.Around. It returns when the test has ended or was
// left behind.
func (w *watch) around(t *testing.T, test func(context.Context, *testing.T)) {
	defer func() {
		if p := recover(); p != nil { // synctest found goroutines that wait for ever
			_, driver := stacks(w.name, w.packages())
			w.fails(t, fmt.Sprintf("goroutines have not ended with the law: %v\n%s", p, driver))
		}
	}()
	w.run.Around(t, func(t *testing.T) {
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
		w.fails(t, w.hangs(why))
		w.run.noteHung(w.law)
		cancel(errHangs)
		w.closeAll()
		select {
		case <-done:
		case <-time.After(freed):
			w.enter(left)
		}
	})
}

// test is the law's own goroutine. A panic fails the law.
func (w *watch) test(ctx context.Context, t *testing.T, test func(context.Context, *testing.T)) {
	labelled(ctx, w.name)
	defer func() {
		if p := recover(); p != nil {
			w.fails(t, fmt.Sprintf("The law panicked: %v\n%s", p, panicStack()))
		}
	}()
	test(ctx, t)
}

// opened notes a backend of the law. With the first the law begins.
func (w *watch) opened(b backend.Backend) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == opening {
		w.phase, w.began = running, time.Now()
	}
	w.backends = append(w.backends, b)
}

// enter moves on to a phase. A law that was left behind stays in that phase.
func (w *watch) enter(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = max(w.phase, p)
}

func (w *watch) at() (p phase, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase, w.began
}

// await waits until the law has returned, or returns why that is in vain.
func (w *watch) await(done <-chan struct{}) (why string) {
	tick := time.NewTicker(w.lease / 4)
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

// stuck says why the law will not return.
func (w *watch) stuck() string {
	p, began := w.at()
	if p == opening {
		return ""
	}
	receive, other, whole := w.limits()
	for _, c := range w.calls.underway() {
		limit := other
		if c.verb == "Receive" {
			limit = receive
		}
		if c.overdue(limit) {
			return "a call has not returned"
		}
	}
	if took := time.Since(began); took > whole {
		return fmt.Sprintf("it has not returned after %v", took.Round(time.Second))
	}
	return ""
}

// hangs is the report of a law that hangs.
func (w *watch) hangs(why string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "The law hangs: %s.\n", why)
	if p, _ := w.at(); p == opening {
		s.WriteString("New has not returned.\n")
	}
	waits, driver := stacks(w.name, w.packages())
	if waits != "" {
		fmt.Fprintf(&s, "It waits in %s.\n", waits)
	}
	s.WriteString(open(w.calls.underway()))
	if driver != "" {
		fmt.Fprintf(&s, "Goroutines in %s:\n%s", strings.Join(w.packages(), ", "), driver)
	}
	return s.String()
}

// open says which calls have not returned, the same calls in one line.
func open(all []call) string {
	if len(all) == 0 {
		return "No call of the backend is under way.\n"
	}
	var lines []string
	count := map[string]int{}
	for _, c := range all {
		line := fmt.Sprintf("%v has not returned for %v", &c, time.Since(c.began).Round(100*time.Millisecond))
		if !c.ctxEnd.IsZero() {
			line += fmt.Sprintf("; its context was done %v ago", time.Since(c.ctxEnd).Round(100*time.Millisecond))
		}
		if count[line]++; count[line] == 1 {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if lines[i] = line + ".\n"; count[line] > 1 {
			lines[i] = fmt.Sprintf("%s (%d calls).\n", line, count[line])
		}
	}
	if more := len(lines) - maxStacks; more > 0 {
		lines = append(lines[:maxStacks], fmt.Sprintf("and %d other calls\n", more))
	}
	return strings.Join(lines, "")
}

func (w *watch) packages() (all []string) {
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
func (w *watch) closeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.backends {
		go func() {
			defer func() { _ = recover() }() // the law has failed already
			_ = b.Close()
		}()
	}
}

// fails fails the test, unless the law was left behind: its test has ended then.
func (w *watch) fails(t *testing.T, text string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == left {
		return
	}
	if w.text == "" {
		w.text = text
	}
	t.Errorf("law: %s %s: %s\n%s", w.law.id, w.law.name, w.law.promise, text)
}

// reason is the text of the first failure.
func (w *watch) reason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// guard stops the run if a test does not end although the law has, or was left
// behind; if a fake clock stands still; and shortly before go test would. It runs
// on the clock of the machine.
func (w *watch) guard(deadline time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	_, _, whole := w.limits()
	limits := map[phase]time.Duration{running: whole + time.Minute, cleaning: 2 * time.Minute, left: 5 * time.Second}
	if w.run.fakeClock {
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
				w.run.giveUp(w, fmt.Sprintf("it has not returned after %v", limit))
			case ok && now.Sub(since) > limit:
				w.run.giveUp(w, fmt.Sprintf("its test has not ended %v after the law", limit))
			case !deadline.IsZero() && time.Until(deadline) < reserve:
				w.run.giveUp(w, "the time of go test -timeout is over")
			}
		}
	}
}
