package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// pause is how long a test waits before it repeats what has failed.
const pause = 20 * time.Millisecond

// notice is how long a driver may take to find out that its broker does not
// answer.
const notice = 5 * time.Second

// passing reports whether an error may come of a broker that was harmed.
func passing(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
}

// persist calls f until it returns no error. An error is a failure, unless
// something was harmed that may not be well yet.
func (e *driverEnv) persist(what string, f func() error) {
	e.Helper()
	end := time.Now().Add(e.patience())
	for {
		err := f()
		if err == nil {
			return
		}
		if !e.troubled || !passing(err) || time.Now().After(end) {
			e.failf("%s: got error %v, want none", what, err)
		}
		time.Sleep(pause)
	}
}

// peer returns another backend on the same broker.
func (e *driverEnv) peer() backend.Backend {
	e.Helper()
	return e.opened(e.suite.Peer(e.T, e.own(e.b)))
}

// attachPeer makes a member of a group in another process, and returns that too.
func (e *driverEnv) attachPeer(c backend.Config) (backend.Backend, backend.Source) {
	e.Helper()
	p := e.peer()
	return p, e.attachTo(p, e.config(c))
}

// trouble notes that something is harmed, or was.
func (e *driverEnv) trouble() {
	e.troubled = true
	e.watch.calls.harm()
}

// lasting notes that something is harmed until end is called, at the end of the
// test at the latest.
func (e *driverEnv) lasting(end func()) func() {
	e.trouble()
	end = sync.OnceFunc(end)
	e.Cleanup(end)
	return end
}

func (e *driverEnv) down(b backend.Backend) (up func()) {
	return e.lasting(e.suite.Faults.Down(e.T, e.own(b)))
}

func (e *driverEnv) freeze(b backend.Backend) (thaw func()) {
	return e.lasting(e.suite.Faults.Freeze(e.T, e.own(b)))
}

func (e *driverEnv) swallow(b backend.Backend) (end func()) {
	return e.lasting(e.suite.Faults.Swallow(e.T, e.own(b)))
}

func (e *driverEnv) dropReply(kind Request) {
	e.trouble()
	e.suite.Faults.DropReply(e.T, e.own(e.b), kind)
}

func (e *driverEnv) kill() {
	e.trouble()
	e.suite.Faults.Kill(e.T, e.own(e.b))
}

func (e *driverEnv) restart() {
	e.trouble()
	e.suite.Faults.Restart(e.T, e.own(e.b))
}

// within returns a context for a call that is to end in time.
func (e *driverEnv) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), d)
	e.Cleanup(cancel)
	return ctx
}
