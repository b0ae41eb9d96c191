package nats

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// A sender passes the messages of all calls to the client library. The functions of the
// library take no context, and may block while it dials or writes. So only the goroutine of
// the sender calls them, and a caller can leave when its context is done.
type sender struct {
	conn   *natsgo.Conn
	status chan natsgo.Status // gets a status when the connection is lost
	wake   chan struct{}      // gets an element when a sending was queued, and at close
	ended  chan struct{}      // closed when the goroutine has ended

	mu     sync.Mutex
	queue  []*sendRequest
	lost   chan struct{} // closed at the next loss of the connection; only the goroutine replaces it, and Close after it
	closed bool

	// Memory for one message after another. Only the goroutine uses it.
	message natsgo.Msg
	values  []string
}

// A sending is a part of a call for the goroutine of the sender. After send, the caller
// uses only the channels.
type sendRequest struct {
	inbox *inbox        // receives the answers; nil if there are none
	out   []outgoing    // messages to send, in this order
	lost  chan struct{} // closed when the connection is lost: no answer comes, and nothing more is sent
	do    func()        // if set, the goroutine calls it, and sends nothing

	failed  chan backend.BatchError // gets the errors of messages that were certainly not sent
	refused chan error              // gets a permission violation that the server reported after sending

	before error       // last error of the connection before this sending
	begun  atomic.Bool // the goroutine sends it; changed under sender.mu
}

// An outgoing is a message to send. It has no memory that its caller may change. An
// outgoing without a subject is not sent.
type outgoing struct {
	subject, reply string
	header         backend.Headers // names and values as stored
	data           []byte
}

func newSender(conn *natsgo.Conn) *sender {
	s := &sender{
		conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{}), lost: make(chan struct{}),
		status:  conn.StatusChanged(natsgo.DISCONNECTED, natsgo.RECONNECTING, natsgo.CLOSED),
		message: natsgo.Msg{Header: natsgo.Header{}},
	}
	go s.run()
	return s
}

// connection returns a channel that is closed when the present connection is lost.
func (s *sender) connection() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// send queues messages without waiting. They are sent only while lost is the present
// connection. The inbox receives the answers.
func (s *sender) send(in *inbox, out []outgoing, lost chan struct{}) *sendRequest {
	req := &sendRequest{inbox: in, out: out, lost: lost, failed: make(chan backend.BatchError, 1), refused: make(chan error, 1)}
	s.enqueue(req)
	return req
}

// later queues a function for the goroutine without waiting.
func (s *sender) do(do func()) { s.enqueue(&sendRequest{do: do}) }

func (s *sender) enqueue(req *sendRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.closed:
		s.queue = append(s.queue, req)
		s.signal()
	case req.do != nil:
		go func() { <-s.ended; req.do() }() // the connection may be lent, and outlive s
	default:
		req.fail(backend.ErrClosed)
	}
}

// leave tells the sender that the caller of c no longer waits. It returns true if no
// message of c was or will be sent.
func (s *sender) withdraw(req *sendRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.begun.Load() {
		return false
	}
	s.queue = slices.DeleteFunc(s.queue, func(q *sendRequest) bool { return q == req })
	return true
}

func (s *sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close handles the whole queue, then ends the goroutine and waits for its end.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.signal()
	s.mu.Unlock()
	<-s.ended
}

func (s *sender) run() {
	defer close(s.ended)
	defer s.conn.RemoveStatusListener(s.status)
	for {
		connected := s.conn.IsConnected() // may block; no sending is begun yet, so its caller can leave
		switch req, over := s.next(connected); {
		case req != nil:
			s.handle(req)
		case over:
			return
		default:
			select {
			case <-s.wake:
			case <-s.status:
				s.connectionLost()
			}
		}
	}
}

// next takes the first element of the queue, if there is one, and begins it if it can be sent.
// over means that there will be none.
func (s *sender) next(connected bool) (req *sendRequest, over bool) {
	for len(s.status) > 0 {
		<-s.status
		s.connectionLost()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil // free its memory
		return nil, s.closed
	}
	req, s.queue[0] = s.queue[0], nil
	s.queue = s.queue[1:]
	req.begun.Store(connected && req.lost == s.lost)
	return req, false
}

// lose tells all callers that the connection is lost.
func (s *sender) connectionLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.lost)
	s.lost = make(chan struct{})
}

func (s *sender) handle(req *sendRequest) {
	switch {
	case req.do != nil:
		req.do()
		return
	case !req.begun.Load():
		req.fail(errNotConnected)
		return
	}
	if err := req.inbox.subscribe(s.conn); err != nil {
		req.fail(err)
		return
	}
	req.before = s.conn.LastError()
	var failed backend.BatchError
	for i := range req.out {
		failed.Set(i, len(req.out), s.publish(&req.out[i]))
	}
	if failed != nil {
		req.failed <- failed
	}
}

// fail tells the caller that no message of c was sent. An outgoing without a subject is no
// message: it may stand for an earlier one, which has its own result.
func (req *sendRequest) fail(err error) {
	failed := make(backend.BatchError, len(req.out))
	for i := range req.out {
		if req.out[i].subject != "" {
			failed[i] = err
		}
	}
	req.failed <- failed
}

// publish sends a message. After a loss of the connection it sends none, because the library
// may have a new connection by now. The messages sent before may be lost with the old one,
// and the broker would store this one without them.
func (s *sender) publish(o *outgoing) error {
	switch {
	case o.subject == "":
		return nil
	case len(s.status) > 0:
		return errNotConnected
	case o.header == nil && o.reply == "":
		return s.conn.Publish(o.subject, o.data)
	case o.header == nil:
		return s.conn.PublishRequest(o.subject, o.reply, o.data)
	}
	n := len(o.header)
	if len(s.values) < n {
		s.values = make([]string, n)
	}
	for i, h := range o.header {
		s.values[i] = h.Value
		s.message.Header[h.Name] = s.values[i : i+1 : i+1]
	}
	s.message.Subject, s.message.Reply, s.message.Data = o.subject, o.reply, o.data
	err := s.conn.PublishMsg(&s.message)
	clear(s.message.Header) // keep no text of the caller; o may have other content by now
	clear(s.values[:n])
	s.message = natsgo.Msg{Header: s.message.Header}
	return err
}

// doubt looks for a permission violation that the server reported after c was sent, and
// sends it to c.refused.
func (s *sender) checkViolation(req *sendRequest) {
	s.do(func() {
		err := s.conn.LastError()
		if err == req.before || !errors.Is(err, natsgo.ErrPermissionViolation) { //nolint:errorlint // identity: a new violation may have the same text
			return
		}
		select {
		case req.refused <- err:
		default:
		}
	})
}

// A line sends the messages of one call at a time through the sender, and receives their
// answers in an inbox. After an error its next call uses a new inbox, because late answers
// may arrive in the old one.
type replyInbox struct {
	sender *sender
	size   int // most messages in the inbox; the library drops further ones
	timer  *time.Timer
	ended  <-chan struct{} // closed when the owner of the line is closed; nil if it waits for no such end

	inbox *inbox       // nil before the first call, and after hangUp
	sent  *sendRequest // the messages of the present call
}

// An inbox is a subscription to all subjects that begin with its prefix.
type inbox struct {
	prefix string
	msgs   chan *natsgo.Msg

	sub *natsgo.Subscription // only the sender's goroutine uses it; nil before the first sending
}

func newReplyInbox(s *sender, room int, ended <-chan struct{}) replyInbox {
	return replyInbox{sender: s, size: room, ended: ended, timer: time.NewTimer(time.Hour)}
}

// open makes an inbox, unless there is one.
func (ri *replyInbox) ensureInbox() {
	if ri.inbox == nil {
		ri.inbox = &inbox{prefix: ri.sender.conn.NewInbox() + ".", msgs: make(chan *natsgo.Msg, ri.size)}
	}
}

// wait returns the next message for the inbox, or nil if none comes for the time pause. The
// error is a [backend.BatchError] if some messages were not sent, a permission violation,
// or the reason for which no message comes.
func (ri *replyInbox) wait(ctx context.Context, pause time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-ri.inbox.msgs: // tried first without a timer, because messages often come together
		return m, nil
	default:
	}
	ri.timer.Reset(pause)
	select {
	case m := <-ri.inbox.msgs:
		return m, nil
	case failed := <-ri.sent.failed:
		return nil, failed
	case violation := <-ri.sent.refused:
		return nil, violation
	case <-ri.timer.C:
		ri.sender.checkViolation(ri.sent)
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-ri.sent.lost:
		return nil, errConnectionLost
	case <-ri.ended:
		return nil, backend.ErrClosed
	}
}

// hangUp ends the inbox.
func (ri *replyInbox) closeInbox() {
	if in := ri.inbox; in != nil {
		ri.inbox = nil
		ri.sender.do(func() {
			if in.sub != nil {
				_ = in.sub.Unsubscribe() // the connection may be closed
			}
		})
	}
}

// drain ends the subscription without losing messages. The result gets an element when all
// messages sent to the inbox have arrived. In a cluster drain does nothing, because another
// server may still send.
func (ri *replyInbox) drain() <-chan struct{} {
	in, conn, drained := ri.inbox, ri.sender.conn, make(chan struct{}, 1)
	ri.sender.do(func() {
		if in.sub != nil && conn.ConnectedClusterName() == "" {
			in.sub.SetClosedHandler(func(string) {
				select { // the library may call it twice
				case drained <- struct{}{}:
				default:
				}
			})
			_ = in.sub.Drain() // if it fails, the connection is lost
		}
	})
	return drained
}

// subscribe begins the subscription, unless it has begun.
func (in *inbox) subscribe(conn *natsgo.Conn) (err error) {
	if in != nil && in.sub == nil {
		in.sub, err = conn.ChanSubscribe(in.prefix+"*", in.msgs)
	}
	return err
}

// concerns reports whether a violation names a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// isUnserved reports whether an answer says that no server listens on the subject of the
// request.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
