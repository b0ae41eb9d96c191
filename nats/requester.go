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

// A requester sends the requests of one call at a time, and gathers their answers.
type requester struct {
	sender *sender
	inbox  *inbox
	look   *time.Timer

	out     []outgoing
	mem     slab.Slab // of the call
	subject []byte    // of the last reply
	waits   []bool    // by request: for its answer
	awaited int       // answers
	stale   bool      // an answer may come to a later call
}

const (
	requesters  = 16                    // calls with messages at the same time, and others
	requestRoom = 4096                  // answers under way
	smallCall   = 1024                  // a requester keeps the memory of no more messages
	quiet       = 50 * time.Millisecond // a call without an answer looks so often whether it was forbidden
	silence     = time.Second / quiet   // and asks so seldom why there is no answer
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

// add adds a message, and asks for an answer to it.
func (r *requester) add(o outgoing, asks bool) {
	i := len(r.out)
	if asks {
		r.subject = strconv.AppendInt(append(r.subject[:0], r.inbox.prefix...), int64(i), 10)
		o.reply = r.mem.Text(r.subject)
		r.waits[i] = true
		r.awaited++
	}
	r.out = append(r.out, o)
}

// replyLen is the most bytes of a reply.
func (r *requester) replyLen() int { return len(r.inbox.prefix) + len("4096") }

// A conversation is a call's part of an exchange.
type conversation struct {
	patience time.Duration // for one answer after the other; 0: as long as the context
	got      func(i int, m *natsgo.Msg)
	failed   func(i int, err error) // of a request that certainly had no effect; waits or not

	// Why is called in each second without an answer, if it is set. The function that it
	// returns is then asked for the error of each request that will not be answered.
	why func() func(i int) error
}

// exchange sends what was added and waits until every request is answered, or
// failed. It ends early when ctx is done, or the connection or patience is lost;
// waits then tells of which requests nothing is known.
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

// again sends a part of what was added once more, for the answers that are awaited.
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
		case m := <-r.inbox.msgs: // most often there is another one
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
			r.forbidden(violation, c)
		case <-r.look.C:
			if looks++; c.patience > 0 && looks*quiet >= c.patience {
				return context.DeadlineExceeded
			}
			r.sender.doubt(sent)
			if looks%silence == 0 && c.why != nil {
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

// take takes an answer, and returns what the looks are then.
func (r *requester) take(m *natsgo.Msg, c conversation, looks time.Duration) time.Duration {
	index, ok := strings.CutPrefix(m.Subject, r.inbox.prefix)
	i, err := strconv.ParseUint(index, 10, 32)
	if !ok || err != nil || int(i) >= len(r.waits) || !r.waits[i] {
		return looks // it is forged
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

// unanswered ends a request for which no answer is awaited any more.
func (r *requester) unanswered(i int, err error, c conversation) {
	r.stale = true
	r.answered(i)
	c.failed(i, err)
}

// forbidden ends the requests that a violation is about.
func (r *requester) forbidden(violation error, c conversation) {
	for i, waits := range r.waits {
		if waits && (concerns(violation, r.out[i].subject) || concerns(violation, r.inbox.prefix+"*")) {
			r.unanswered(i, fmt.Errorf("%w: %w", backend.ErrDenied, violation), c)
		}
	}
}

// lookInto ends the requests for which no answer will come.
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

// concerns reports whether a violation is about a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// renew leaves the inbox, to which answers may come late, and all memory that the
// sender may still read.
func (r *requester) renew() {
	_ = r.close()
	r.inbox, r.out, r.stale = nil, nil, false
}

// end gives up the memory of a large call.
func (r *requester) end() {
	if cap(r.out) > smallCall {
		r.out, r.waits = nil, nil
	}
	clear(r.out)
	r.mem = slab.Slab{}
}

// close leaves the inbox.
func (r *requester) close() error {
	if r.inbox != nil {
		r.sender.unsubscribe(r.inbox)
	}
	return nil
}

// isUnserved reports whether an answer says that nobody listens on the subject of
// the request.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
