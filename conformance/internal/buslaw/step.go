package buslaw

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/history"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// StillAtLast fails the law if runs do not stop. It waits for a period of a lease and a
// little more without a new run. Earlier runs are allowed, because events may be
// redelivered if their acknowledgement got no answer.
func (e *Env) StillAtLast() {
	e.Helper()
	for end := time.Now().Add(e.Patience()); ; {
		runs := e.Recorder.Count()
		time.Sleep(e.Lease + e.Soon())
		if e.Recorder.Count() == runs {
			return
		}
		if time.Now().After(end) {
			e.Failf("events still come after %v\nrecorded: %s", e.Patience(), e.Recorder.Summary())
		}
	}
}

// NothingLost checks the history of a group after its broker was harmed. The group must have
// settled every stored event. A settled event may be delivered again. If once is true, each
// event must be stored only once.
func (e *Env) NothingLost(once bool, group string) {
	e.Helper()
	for _, f := range e.Recorder.history.Check(history.Expect{Groups: []string{group}, Attempts: history.Uncounted}) {
		if f.Rule != history.SettledForGood {
			e.Failf("history: %v\nrecorded: %s", f, e.Recorder.Summary())
		}
	}
	positions := map[string]string{}
	for _, h := range e.Recorder.All(group) {
		d := h.Delivery
		if p, ok := positions[d.ID]; ok && p != d.Position && once {
			e.Failf("event %s is stored twice, at %s and at %s", d.ID, p, d.Position)
		}
		positions[d.ID] = d.Position
	}
}

// Gap expects that run i+1 under name began d, or a little more, after run i had ended.
func (e *Env) Gap(name string, i int, d time.Duration) {
	e.Helper()
	runs := e.Recorder.All(name)
	if got := runs[i+1].Began.Sub(runs[i].Ended); got < d-law.Tick || got > d+e.Soon() {
		e.Failf("%s: was redelivered after %v, want %v or somewhat more", name, got, d)
	}
}

// Crash simulates a process that is killed while it holds n events of a group. It receives
// n events and settles none, the given number of times.
func (e *Env) Crash(group string, times, n int) {
	e.Helper()
	delays, lease := e.Claims(law.NeedDelayer), e.Lease
	if !delays {
		lease /= 8
	}
	src := e.AttachAs(backend.Config{Group: group, Lease: lease})
	for range times {
		if ds := e.Receive(src, n); delays { // the events are given back, so that the test need not wait until their leases expire
			e.Verb(e.Delay(src, 0, ds...))
		}
	}
	e.Must(src.Close())
	if !delays {
		time.Sleep(lease + e.Soon())
	}
}
