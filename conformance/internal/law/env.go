package law

import (
	"context"
	"errors"
	"testing"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/calls"
	"github.com/seed41896749/eventbus/conformance/internal/watch"
)

// An Env is the environment in which one law is tested. It has a fresh backend, and methods
// that open further backends and harm them. The methods of steps call the backend. The
// methods of trial, which steps embeds, fail the test.
type Env struct {
	steps
	Harness *Harness
}

// NewEnv opens the backend of a law.
func NewEnv(ctx context.Context, t *testing.T, w *watch.Watch, h *Harness, l Law) *Env {
	e := &Env{steps: steps{trial: newTrial(ctx, t, w, l)}, Harness: h}
	e.Backend = e.opened(h.New(t))
	e.Limits = backend.LimitsOf(e.Backend)
	e.Cleanup(e.reads.Wait) // waits for late Receives; this cleanup runs last, after all sources have closed
	return e
}

// Try runs the test of the law only if every Need of the law is met. Otherwise Lacks returns
// the name of the first missing Need.
func (e *Env) Try() {
	defer e.cleanUp()
	for _, n := range e.Law.Needs {
		if !e.Claims(n) {
			e.unclaimed = n.what
			return
		}
	}
	e.Law.Test(e)
}

// Claims reports whether n is met: the backend claims the verb or the limit, or the field
// of the suite is set.
func (e *Env) Claims(n Need) bool { return n.claimed(e) }

// opened registers the new backend b with the watch, and returns b with its calls recorded.
func (e *Env) opened(b backend.Backend) backend.Backend {
	if b == nil {
		e.Failf("the suite made no backend")
	}
	return e.watch.Opened(b)
}

// own returns the backend that New or Peer returned, without the wrapper that records its
// calls, because a fault accepts no other backend.
func (e *Env) own(b backend.Backend) backend.Backend {
	if r, ok := b.(*calls.Backend); ok {
		return r.Backend
	}
	return b
}

// OpenBounded replaces the backend under test by a new one with room for this many
// messages.
func (e *Env) OpenBounded(messages int) { e.Backend = e.opened(e.Harness.NewBounded(e.T, messages)) }

// Peer returns another backend on the same broker.
func (e *Env) Peer() backend.Backend {
	e.Helper()
	return e.opened(e.Harness.Peer(e.T, e.own(e.Backend)))
}

// AttachPeer opens a backend that stands for another process, and attaches a member to it.
// It returns both.
func (e *Env) AttachPeer(c backend.Config) (backend.Backend, backend.Source) {
	e.Helper()
	p := e.Peer()
	return p, e.AttachTo(p, e.Config(c))
}

// Passing reports whether err may be a temporary effect of harm to the broker.
func Passing(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
}

// Down makes the broker unreachable for b until up is called.
func (e *Env) Down(b backend.Backend) (up func()) {
	return e.lasting(e.Harness.Faults.Down(e.T, e.own(b)))
}

// Freeze delays all traffic of b until thaw is called.
func (e *Env) Freeze(b backend.Backend) (thaw func()) {
	return e.lasting(e.Harness.Faults.Freeze(e.T, e.own(b)))
}

// Swallow loses all answers to b until end is called.
func (e *Env) Swallow(b backend.Backend) (end func()) {
	return e.lasting(e.Harness.Faults.Swallow(e.T, e.own(b)))
}

// Cut breaks the connections of b.
func (e *Env) Cut(b backend.Backend) {
	e.Trouble()
	e.Harness.Faults.Cut(e.T, e.own(b))
}

// DropReply loses the answer to the backend's next request of this kind.
func (e *Env) DropReply(kind Request) {
	e.Trouble()
	e.Harness.Faults.DropReply(e.T, e.own(e.Backend), kind)
}

// Kill ends the broker without a warning and starts it again.
func (e *Env) Kill() {
	e.Trouble()
	e.Harness.Faults.Kill(e.T, e.own(e.Backend))
}

// Restart stops the broker cleanly and starts it again.
func (e *Env) Restart() {
	e.Trouble()
	e.Harness.Faults.Restart(e.T, e.own(e.Backend))
}

// Lose removes a stored message. It does not call Trouble, because calls still succeed.
func (e *Env) Lose(topic, position string) {
	e.Harness.Faults.Lose(e.T, e.own(e.Backend), topic, position)
}

// Commands counts the requests that the backend has sent so far.
func (e *Env) Commands() int64 { return e.Harness.Faults.Commands(e.T, e.own(e.Backend)) }
