package conformance

import (
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/history"
)

// The steps that laws of the bus are made of, beside those of the recorder.

// stillAtLast expects that nothing more comes, in the end: what nobody knows to
// be acknowledged may come once more.
func (e *busEnv) stillAtLast() {
	e.Helper()
	for end := time.Now().Add(e.patience()); ; {
		runs := e.log.count()
		time.Sleep(e.lease + e.soon())
		if e.log.count() == runs {
			return
		}
		if time.Now().After(end) {
			e.failf("events still come after %v\nrecorded: %s", e.patience(), e.log.summary())
		}
	}
}

// nothingLost checks the history of a group whose broker was harmed. An event whose
// acknowledgement was not answered may have been redelivered.
func (e *busEnv) nothingLost(once bool, group string) {
	e.Helper()
	for _, f := range e.log.history.Check(history.Expect{Groups: []string{group}, Attempts: history.Uncounted}) {
		if f.Rule != history.SettledForGood {
			e.failf("history: %v\nrecorded: %s", f, e.log.summary())
		}
	}
	positions := map[string]string{}
	for _, h := range e.log.all(group) {
		d := h.delivery
		if p, ok := positions[d.ID]; ok && p != d.Position && once {
			e.failf("event %s is stored twice, at %s and at %s", d.ID, p, d.Position)
		}
		positions[d.ID] = d.Position
	}
}

// gap expects that the run after run i under name began once d had passed, and
// not much later.
func (e *busEnv) gap(name string, i int, d time.Duration) {
	e.Helper()
	runs := e.log.all(name)
	if got := runs[i+1].began.Sub(runs[i].ended); got < d-tick || got > d+e.soon() {
		e.failf("%s: came again after %v, want %v or somewhat more", name, got, d)
	}
}

// crash takes n events of a group so many times without a verdict, as processes
// do that are killed each time.
func (e *busEnv) crash(group string, times, n int) {
	e.Helper()
	delays, lease := needDelayer.claimed(e.driverEnv), e.lease
	if !delays {
		lease /= 8
	}
	src := e.attachAs(backend.Config{Group: group, Lease: lease})
	for range times {
		if ds := e.receive(src, n); delays { // sooner than when the lease has passed
			e.verb(e.delay(src, 0, ds...))
		}
	}
	e.must(src.Close())
	if !delays {
		time.Sleep(lease + e.soon())
	}
}
