package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A requester sends the requests of one call at a time and gathers their answers.
type requester struct {
	sender *sender
	inbox  *inbox
	look   *time.Timer

	first   uint64 // number of the first request of the call; a requester numbers all its requests
	out     []outgoing
	mem     slab.Slab // memory of the messages of the current call
	subject []byte    // buffer for a reply subject
	waits   []bool    // for each request, whether its answer is awaited
	awaited int       // number of requests whose answers are awaited
	stale   bool      // a late answer may arrive during a later call
}

const (
	requesters  = 16                    // size of each pool of requesters: one for messages, one for API calls
	requestRoom = 4096                  // most requests of one exchange
	smallCall   = 1024                  // a requester does not keep the memory of a call with more requests
	quiet       = 50 * time.Millisecond // interval of checks for a missing permission, while no answer comes
	silence     = time.Second / quiet   // number of quiet intervals between two calls of conversation.why
)

func newRequesters(s *sender) *pool.Pool[*requester] {
	create := func() (*requester, error) { return &requester{sender: s, look: time.NewTimer(time.Hour)}, nil }
	return pool.New(requesters, create, (*requester).close)
}

// begin begins a call with at most n requests.
func (r *requester) begin(n int) {
	if r.inbox == nil {
		r.inbox = newInbox(r.sender.conn, requestRoom+16)
	}
	if cap(r.out) < n || cap(r.waits) < n {
		r.out, r.waits = make([]outgoing, 0, n), make([]bool, n)
	}
	r.out, r.waits, r.mem, r.awaited = r.out[:0], r.waits[:n], slab.Slab{}, 0
	clear(r.waits)
}

// add adds a request to the call. If asks is set, exchange waits for its answer. No two
// requests have the same reply subject, because a cluster with a new leader may answer a
// request twice.
func (r *requester) add(o outgoing, asks bool) {
	i := len(r.out)
	if asks {
		r.subject = strconv.AppendUint(append(r.subject[:0], r.inbox.prefix...), r.first+uint64(i), 10)
		o.reply = r.mem.Text(r.subject)
		r.waits[i] = true
		r.awaited++
	}
	r.out = append(r.out, o)
}

// replyLen returns the most bytes that a reply subject can have.
func (r *requester) replyLen() int { return len(r.inbox.prefix) + len("18446744073709551615") }

// A conversation has the settings and callbacks of one exchange.
type conversation struct {
	patience time.Duration // longest time between two answers; 0: only the context ends the exchange
	got      func(i int, m *natsgo.Msg)
	failed   func(i int, err error) // called for each request that certainly had no effect

	// why is called after each second without an answer, unless it is nil. It returns a
	// function: for a request that will never be answered this function returns the error,
	// and nil for the others.
	why func() func(i int) error
}

// exchange sends the requests of the call, and waits until all awaited answers have come or
// failed. It returns an error if ctx is done, the connection is lost, or no answer comes
// for c.patience. Then the outcome of the requests that are still set in waits is unknown.
func (r *requester) exchange(ctx context.Context, c conversation) error {
	sent := newSending(r.inbox, r.out)
	r.sender.send(sent)
	err := r.gather(ctx, sent, c)
	if err != nil && r.sender.leave(sent) {
		for i := range r.out {
			c.failed(i, classOf(ctx, err, false))
		}
		clear(r.waits)
	}
	if err != nil || r.stale {
		r.renew()
	}
	return err
}

// again sends the selected requests of the call a second time. Their answers are still
// awaited.
func (r *requester) again(which func(i int) bool) {
	var out []outgoing
	for i := range r.out {
		if which(i) {
			out = append(out, r.out[i])
		}
	}
	r.sender.send(newSending(r.inbox, out))
}

func (r *requester) gather(ctx context.Context, sent *sending, c conversation) error {
	looks := time.Duration(0)
	for r.awaited > 0 {
		select {
		case m := <-r.inbox.msgs: // tried first without a timer, because answers often come together
			looks = r.take(m, c, looks)
			continue
		default:
		}
		r.look.Reset(quiet)
		select {
		case m := <-r.inbox.msgs:
			looks = r.take(m, c, looks)
		case errs := <-sent.failed:
			for i, err := range errs {
				if err != nil {
					r.unanswered(i, classOf(ctx, err, false), c)
				}
			}
		case violation := <-sent.refused:
			if concerns(violation, r.inbox.prefix+"*") { // the answers are refused, not the requests
				return violation
			}
			r.forbidden(violation, c)
		case <-r.look.C:
			if looks++; c.patience > 0 && looks*quiet >= c.patience {
				return context.DeadlineExceeded
			}
			r.sender.doubt(sent)
			if looks%silence == 0 && c.why != nil && r.sender.hasBegun(sent) {
				r.lookInto(c)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-sent.lost:
			return errConnectionLost
		}
	}
	return nil
}

// take handles an answer. looks is the number of quiet intervals without an answer. take
// returns the new number: 0 after an awaited answer, otherwise looks.
func (r *requester) take(m *natsgo.Msg, c conversation, looks time.Duration) time.Duration {
	index, ok := strings.CutPrefix(m.Subject, r.inbox.prefix)
	i, err := strconv.ParseUint(index, 10, 64)
	i -= r.first // becomes very large for a request of an earlier call
	if !ok || err != nil || i >= uint64(len(r.waits)) || !r.waits[i] {
		return looks // the answer to an earlier request, or a forged one
	}
	r.answered(int(i))
	c.got(int(i), m)
	return 0
}

func (r *requester) answered(i int) {
	if r.waits[i] {
		r.waits[i] = false
		r.awaited--
	}
}

// unanswered ends the wait for the answer to request i, and calls c.failed.
func (r *requester) unanswered(i int, err error, c conversation) {
	r.stale = true
	r.answered(i)
	c.failed(i, err)
}

// forbidden ends the requests to the subject that a permission violation names.
func (r *requester) forbidden(violation error, c conversation) {
	for i, waits := range r.waits {
		if waits && concerns(violation, r.out[i].subject) {
			r.unanswered(i, fmt.Errorf("%w: %w", backend.ErrDenied, violation), c)
		}
	}
}

// lookInto asks c.why which awaited requests will never be answered. It ends these requests
// with the errors that c.why reports.
func (r *requester) lookInto(c conversation) {
	known := c.why()
	for i, waits := range r.waits {
		if !waits {
			continue
		}
		if err := known(i); err != nil {
			r.unanswered(i, err, c)
		}
	}
}

// concerns reports whether a violation names a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// renew makes the next call use a new inbox, because late answers may arrive in the old
// one. The next call also uses new memory, because the sender may still read the old
// memory.
func (r *requester) renew() {
	_ = r.close()
	r.inbox, r.out, r.stale = nil, nil, false
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

// close ends the inbox.
func (r *requester) close() error {
	if r.inbox != nil {
		r.sender.unsubscribe(r.inbox)
	}
	return nil
}

// isUnserved reports whether an answer says that no server listens on the subject of the
// request.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
