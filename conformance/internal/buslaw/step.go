package buslaw

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/history"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// Steps of laws of the bus.

// StillAtLast expects that events stop coming in the end. An event whose acknowledgement
// has no answer may come once more.
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

// NothingLost checks the history of a group whose broker was harmed. An event whose
// acknowledgement was not answered may have been redelivered.
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

// Gap expects that the run after run i under name began after d, and not much later.
func (e *Env) Gap(name string, i int, d time.Duration) {
	e.Helper()
	runs := e.Recorder.All(name)
	if got := runs[i+1].Began.Sub(runs[i].Ended); got < d-law.Tick || got > d+e.Soon() {
		e.Failf("%s: came again after %v, want %v or somewhat more", name, got, d)
	}
}

// Crash takes n events of a group so many times without a verdict, as if each time the
// process were killed.
func (e *Env) Crash(group string, times, n int) {
	e.Helper()
	delays, lease := e.Claims(law.NeedDelayer), e.Lease
	if !delays {
		lease /= 8
	}
	src := e.AttachAs(backend.Config{Group: group, Lease: lease})
	for range times {
		if ds := e.Receive(src, n); delays { // they are redelivered before the lease expires
			e.Verb(e.Delay(src, 0, ds...))
		}
	}
	e.Must(src.Close())
	if !delays {
		time.Sleep(lease + e.Soon())
	}
}
