package law

import (
	"context"
	"errors"
	"testing"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/calls"
	"github.com/seed41896749/eventbus/conformance/internal/watch"
)

// A Env is one test of one law on one fresh backend. A trial judges, and steps call the
// backend. The environment itself opens backends and harms them.
type Env struct {
	steps
	Harness *Harness
}

// NewEnv opens the backend of a law.
func NewEnv(ctx context.Context, t *testing.T, w *watch.Watch, h *Harness, l Law) *Env {
	e := &Env{steps: steps{trial: newTrial(ctx, t, w, l)}, Harness: h}
	e.Backend = e.opened(h.New(t))
	e.Limits = backend.LimitsOf(e.Backend)
	e.Cleanup(e.reads.Wait) // the contexts and sources of the test have ended before
	return e
}

// Try tests the law, unless the backend lacks a claim that the law needs.
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

// Claims reports whether the backend, or its suite, claims a verb or a fact.
func (e *Env) Claims(n Need) bool { return n.claimed(e) }

// opened returns b, which is new, with its calls recorded.
func (e *Env) opened(b backend.Backend) backend.Backend {
	if b == nil {
		e.Failf("the suite made no backend")
	}
	return e.watch.Opened(b)
}

// own returns the backend that New or Peer returned, for a fault.
func (e *Env) own(b backend.Backend) backend.Backend {
	if r, ok := b.(*calls.Backend); ok {
		return r.Backend
	}
	return b
}

// OpenBounded replaces the backend by one with room for so many messages.
func (e *Env) OpenBounded(messages int) { e.Backend = e.opened(e.Harness.NewBounded(e.T, messages)) }

// Peer returns another backend on the same broker.
func (e *Env) Peer() backend.Backend {
	e.Helper()
	return e.opened(e.Harness.Peer(e.T, e.own(e.Backend)))
}

// AttachPeer attaches a member of a group in another process. It returns the backend of
// that process too.
func (e *Env) AttachPeer(c backend.Config) (backend.Backend, backend.Source) {
	e.Helper()
	p := e.Peer()
	return p, e.AttachTo(p, e.Config(c))
}

// Passing reports whether an error may be the effect of a harmed broker.
func Passing(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome)
}

// Down makes the broker unreachable for b until up is called.
func (e *Env) Down(b backend.Backend) (up func()) {
	return e.lasting(e.Harness.Faults.Down(e.T, e.own(b)))
}

// Freeze holds up all traffic of b until thaw is called.
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

// DropReply loses the answer to the next request of a kind.
func (e *Env) DropReply(kind Request) {
	e.Trouble()
	e.Harness.Faults.DropReply(e.T, e.own(e.Backend), kind)
}

// Kill ends the broker without a warning and starts it again.
func (e *Env) Kill() {
	e.Trouble()
	e.Harness.Faults.Kill(e.T, e.own(e.Backend))
}

// Restart stops the broker in good order and starts it again.
func (e *Env) Restart() {
	e.Trouble()
	e.Harness.Faults.Restart(e.T, e.own(e.Backend))
}

// Lose removes a stored message from the broker. It is no trouble, because calls still
// work.
func (e *Env) Lose(topic, position string) {
	e.Harness.Faults.Lose(e.T, e.own(e.Backend), topic, position)
}

// Commands counts the requests that the backend has sent so far.
func (e *Env) Commands() int64 { return e.Harness.Faults.Commands(e.T, e.own(e.Backend)) }
