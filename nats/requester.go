package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A requester sends the requests of one call at a time and gathers their answers.
type requester struct {
	line
	conversation

	first   uint64 // number of the first request of the call; a requester numbers all its requests
	out     []outgoing
	waits   []bool    // for each request, whether its answer is awaited
	awaited int       // number of requests whose answers are awaited
	mem     slab.Slab // memory of the messages of the current call
	subject []byte    // buffer for a reply subject
	stale   bool      // a late answer may arrive during a later call
}

// A conversation has the settings and callbacks of one call.
type conversation struct {
	patience time.Duration // longest time between two answers; 0: only the context ends the call

	// got is called for each awaited request, with its answer or its error. It is also
	// called for each other request that certainly was not sent. If the outcome of a request
	// is unknown, its error has no class.
	got func(i int, m *natsgo.Msg, err error)

	// why is called after each second without an answer, unless it is nil. It may call fail
	// for requests that will never be answered.
	why func()
}

const (
	requesters  = 16                    // size of the pool of requesters
	requestRoom = 4096                  // most requests of one call
	smallCall   = 1024                  // a requester does not keep the memory of a call with more requests
	quiet       = 50 * time.Millisecond // interval of checks for a missing permission, while no answer comes
	silence     = time.Second / quiet   // number of quiet intervals between two calls of conversation.why
)

// newRequester returns a requester for calls of at most room requests.
func newRequester(s *sender, room int) *requester {
	return &requester{line: newLine(s, room+16, nil)}
}

// begin begins a call with n requests. The caller sets the elements of out, and calls await
// for each request with an answer.
func (r *requester) begin(n int) {
	r.open()
	r.out, r.waits = slices.Grow(r.out[:0], n)[:n], slices.Grow(r.waits[:0], n)[:n]
	clear(r.out)
	clear(r.waits)
	r.mem, r.awaited = slab.Slab{}, 0
}

// await makes the call wait for the answer to request i. No two requests have the same reply
// subject, because a cluster with a new leader may answer a request twice.
func (r *requester) await(i int) {
	r.subject = strconv.AppendUint(append(r.subject[:0], r.inbox.prefix...), r.first+uint64(i), 10)
	r.out[i].reply, r.waits[i] = r.mem.Text(r.subject), true
	r.awaited++
}

// replyLen returns the most bytes that a reply subject can have.
func (r *requester) replyLen() int { return len(r.inbox.prefix) + len("18446744073709551615") }

// exchange sends the requests of the call. It returns when all awaited answers have come or
// failed. If ctx is done, the connection is lost, or no answer comes for c.patience, the
// outcome of the unanswered requests is unknown, unless they were not sent.
func (r *requester) exchange(ctx context.Context, c conversation) {
	if r.awaited == 0 {
		return
	}
	r.conversation = c
	// The sender gets no unsent requests at the end. Otherwise it may read them after the last
	// answer, when the next call uses their memory.
	sent := len(r.out)
	for r.out[sent-1].subject == "" {
		sent--
	}
	r.sent = r.sender.send(r.inbox, r.out[:sent], r.sender.connection())
	err := r.gather(ctx)
	if err != nil {
		unsent := r.sender.leave(r.sent)
		if unsent {
			err = classOf(ctx, err, false)
		}
		for i := range r.out {
			if r.waits[i] || unsent && r.out[i].subject != "" {
				r.fail(i, err)
			}
		}
	}
	r.conversation, r.sent = conversation{}, nil // which refer to the messages
	if r.stale {
		r.hangUp()
		r.out, r.waits, r.stale = nil, nil, false // the sender may still read the memory
	}
}

// again sends the selected requests of the call a second time. Their answers are still
// awaited.
func (r *requester) again(which func(i int) bool) {
	out := slices.Clone(r.out)
	for i := range out {
		if !which(i) {
			out[i] = outgoing{}
		}
	}
	r.sender.send(r.inbox, out, r.sent.lost)
}

func (r *requester) gather(ctx context.Context) error {
	for looks := time.Duration(0); r.awaited > 0; {
		m, err := r.wait(ctx, quiet)
		if m != nil {
			if r.take(m) {
				looks = 0
			}
			continue
		}
		failed, notSent := errors.AsType[backend.BatchError](err)
		switch {
		case notSent:
			for i, err := range failed {
				if err != nil {
					r.fail(i, classOf(ctx, err, false))
				}
			}
		case errors.Is(err, natsgo.ErrPermissionViolation) && !concerns(err, r.inbox.prefix+"*"): // requests are refused, not the answers
			for i, waits := range r.waits {
				if waits && concerns(err, r.out[i].subject) {
					r.fail(i, fmt.Errorf("%w: %w", backend.ErrDenied, err))
				}
			}
		case err != nil:
			return err
		default:
			if looks++; r.patience > 0 && looks*quiet >= r.patience {
				return context.DeadlineExceeded
			}
			if looks%silence == 0 && r.why != nil && r.sent.begun.Load() {
				r.why()
			}
		}
	}
	return nil
}

// take handles an answer. It returns false if the answer is not awaited.
func (r *requester) take(m *natsgo.Msg) bool {
	index, ok := strings.CutPrefix(m.Subject, r.inbox.prefix)
	i, err := strconv.ParseUint(index, 10, 64)
	i -= r.first // becomes very large for a request of an earlier call
	if !ok || err != nil || i >= uint64(len(r.waits)) || !r.waits[i] {
		return false // the answer to an earlier request, or a forged one
	}
	r.waits[i] = false
	r.awaited--
	r.got(int(i), m, nil)
	return true
}

// fail ends the wait for the answer to request i, and calls got.
func (r *requester) fail(i int, err error) {
	if r.waits[i] {
		r.waits[i] = false
		r.awaited--
	}
	r.stale = true
	r.got(i, nil, err)
}

// end ends a call. It keeps the memory for the next call, unless the memory is large.
func (r *requester) end() {
	r.first += uint64(len(r.out))
	if cap(r.out) > smallCall {
		r.out, r.waits = nil, nil
	}
	clear(r.out)
	r.mem = slab.Slab{}
}
