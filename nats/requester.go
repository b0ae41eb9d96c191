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

	first   uint64 // number of the call's first request, among all of the inbox
	out     []outgoing
	mem     slab.Slab // of the current call
	subject []byte    // reused buffer for reply subjects
	waits   []bool    // by request: whether its answer is awaited
	awaited int       // number of answers awaited
	stale   bool      // a late answer may arrive during a later call
}

const (
	requesters  = 16                    // concurrent calls with messages; as many API calls
	requestRoom = 4096                  // answers in flight
	smallCall   = 1024                  // a requester frees memory for more messages than this
	quiet       = 50 * time.Millisecond // interval of checks for a missing permission, while no answer comes
	silence     = time.Second / quiet   // quiet intervals before each call of conversation.why
)

func newRequesters(s *sender) *pool.Pool[*requester] {
	create := func() (*requester, error) { return &requester{sender: s, look: time.NewTimer(time.Hour)}, nil }
	return pool.New(requesters, create, (*requester).close)
}

// begin starts a call of at most n requests.
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

// add adds a message. With asks, exchange waits for its answer. No two requests have the
// same reply subject, because a cluster with a new leader may answer a request twice.
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

// replyLen returns the most bytes of a reply subject.
func (r *requester) replyLen() int { return len(r.inbox.prefix) + len("18446744073709551615") }

// A conversation holds a call's settings and callbacks for one exchange.
type conversation struct {
	patience time.Duration // longest gap between two answers; 0: no bound but the context
	got      func(i int, m *natsgo.Msg)
	failed   func(i int, err error) // called for a request that certainly had no effect, awaited or not

	// why, if set, is called each second without an answer. The function it returns gives
	// the error of each request that will never be answered, else nil.
	why func() func(i int) error
}

// exchange sends the added messages and waits until every request is answered or failed.
// It ends early if ctx is done, the connection is lost or patience runs out. The outcome
// of the requests still set in waits is then unknown.
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

// again resends the messages that which selects; their answers are still awaited.
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
		case m := <-r.inbox.msgs: // usually another answer is here
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

// take handles an answer. It returns the number of quiet intervals so far: 0 after a
// genuine answer.
func (r *requester) take(m *natsgo.Msg, c conversation, looks time.Duration) time.Duration {
	index, ok := strings.CutPrefix(m.Subject, r.inbox.prefix)
	i, err := strconv.ParseUint(index, 10, 64)
	i -= r.first // for an answer to an earlier call it wraps around to a large number
	if !ok || err != nil || i >= uint64(len(r.waits)) || !r.waits[i] {
		return looks // an answer to an earlier request, or a forged one
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

// unanswered ends a request without an answer.
func (r *requester) unanswered(i int, err error, c conversation) {
	r.stale = true
	r.answered(i)
	c.failed(i, err)
}

// forbidden ends the requests that a permission violation names.
func (r *requester) forbidden(violation error, c conversation) {
	for i, waits := range r.waits {
		if waits && concerns(violation, r.out[i].subject) {
			r.unanswered(i, fmt.Errorf("%w: %w", backend.ErrDenied, violation), c)
		}
	}
}

// lookInto ends the requests that will never be answered.
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

// renew ends the inbox, because late answers may arrive there. It leaves all memory that the
// sender may still read to the sender.
func (r *requester) renew() {
	_ = r.close()
	r.inbox, r.out, r.stale = nil, nil, false
}

// end frees the memory of a large call.
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

// isUnserved reports whether an answer says that nobody listens on the request's subject.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
