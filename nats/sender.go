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

// A sender passes the messages of all calls to the client library. The library's functions
// take no context and may block while they dial or write. Only the sender's goroutine calls
// them, so that a caller can leave as soon as its context is done.
type sender struct {
	conn   *natsgo.Conn
	status chan natsgo.Status // gets an element when the connection is lost
	wake   chan struct{}      // gets an element when a request was queued, and at close
	ended  chan struct{}      // closed when the goroutine has ended

	mu     sync.Mutex
	queue  []*sendRequest
	lost   chan struct{} // closed when the connection is lost; replaced only by the goroutine, and after its end by Close
	closed bool

	// Memory for one message after another. Only the goroutine uses it.
	message natsgo.Msg
	values  []string
}

// A sendRequest is one call's messages on their way to the sender's goroutine. After send, the
// caller may use only the channels.
type sendRequest struct {
	inbox *inbox        // receives the answers; nil if there are none
	out   []outgoing    // in this order
	lost  chan struct{} // closed when the connection is lost: no answer comes, and no more is sent
	do    func()        // if set, the goroutine calls it, and sends nothing

	failed  chan backend.BatchError // gets the errors of messages that were certainly not sent
	refused chan error              // gets a permission violation that the server reported after sending

	before error       // last error of the connection before this request
	begun  atomic.Bool // the goroutine is sending it; changed under sender.mu
}

// An outgoing is a message to send. None of its memory may change until it is sent. An
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

// connection returns a channel that is closed when the current connection is lost.
func (s *sender) connection() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// send queues messages and returns at once. They are sent only while lost is still the
// channel of the current connection. The inbox receives the answers.
func (s *sender) send(in *inbox, out []outgoing, lost chan struct{}) *sendRequest {
	req := &sendRequest{inbox: in, out: out, lost: lost, failed: make(chan backend.BatchError, 1), refused: make(chan error, 1)}
	s.enqueue(req)
	return req
}

// do queues a function for the goroutine and returns at once.
func (s *sender) do(do func()) { s.enqueue(&sendRequest{do: do}) }

func (s *sender) enqueue(req *sendRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.closed:
		s.queue = append(s.queue, req)
		s.signal()
	case req.do != nil:
		go func() { <-s.ended; req.do() }() // the connection may be the caller's and outlive s
	default:
		req.fail(backend.ErrClosed)
	}
}

// withdraw is for a caller that no longer waits. It returns true if no message of req was or
// will be sent.
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

// close handles the rest of the queue, and returns when the goroutine has ended.
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
		connected := s.conn.IsConnected() // may block; no request has begun yet, so its caller can leave
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

// next takes the first request of the queue, if there is one, and marks it as begun if it can
// be sent. over means that there will never be another one.
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

// connectionLost tells all callers that the connection is lost.
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

// fail reports that no message of the request was sent. It leaves out elements without a
// subject: they stand for earlier messages, which have results of their own.
func (req *sendRequest) fail(err error) {
	failed := make(backend.BatchError, len(req.out))
	for i := range req.out {
		if req.out[i].subject != "" {
			failed[i] = err
		}
	}
	req.failed <- failed
}

// publish sends a message, unless the connection was lost. By then the library may have a new
// one: the broker would store this message, while the ones sent before it may be lost.
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
	clear(s.message.Header) // keep no memory of the caller
	clear(s.values[:n])
	s.message = natsgo.Msg{Header: s.message.Header}
	return err
}

// checkViolation looks for a permission violation that the server has reported since req was
// sent, and passes it to req.refused.
func (s *sender) checkViolation(req *sendRequest) {
	s.do(func() {
		err := s.conn.LastError()
		if err == req.before || !errors.Is(err, natsgo.ErrPermissionViolation) { //nolint:errorlint // identity: a new violation may read the same
			return
		}
		select {
		case req.refused <- err:
		default:
		}
	})
}

// A replyInbox sends the messages of one call at a time through the sender and receives their
// answers. After an error, the next call gets a new inbox, because late answers may still
// arrive in the old one.
type replyInbox struct {
	sender *sender
	buffer int // capacity of the inbox; the library drops messages beyond it
	timer  *time.Timer
	ended  <-chan struct{} // closed when the owner is closed; nil if nobody closes it

	inbox *inbox       // nil before the first call, and after closeInbox
	sent  *sendRequest // the messages of the current call
}

// An inbox is a subscription to all subjects that begin with its prefix.
type inbox struct {
	prefix string
	msgs   chan *natsgo.Msg

	sub *natsgo.Subscription // only the sender's goroutine uses it; nil before the first request
}

func newReplyInbox(s *sender, room int, ended <-chan struct{}) replyInbox {
	return replyInbox{sender: s, buffer: room, ended: ended, timer: time.NewTimer(time.Hour)}
}

// ensureInbox makes an inbox, unless there is one.
func (ri *replyInbox) ensureInbox() {
	if ri.inbox == nil {
		ri.inbox = &inbox{prefix: ri.sender.conn.NewInbox() + ".", msgs: make(chan *natsgo.Msg, ri.buffer)}
	}
}

// wait returns the next message in the inbox, or nil if none arrives within pause. The error
// is a [backend.BatchError] if some messages were not sent, a permission violation, or the
// reason why no message will arrive.
func (ri *replyInbox) wait(ctx context.Context, pause time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-ri.inbox.msgs: // first without the timer, because messages often arrive together
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

// closeInbox gives up the inbox.
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

// drain ends the subscription without losing messages. The returned channel gets an element
// once all messages sent to the inbox have arrived. In a cluster drain does nothing, because
// another server may still be sending.
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

// subscribe starts the subscription, unless it has started.
func (in *inbox) subscribe(conn *natsgo.Conn) (err error) {
	if in != nil && in.sub == nil {
		in.sub, err = conn.ChanSubscribe(in.prefix+"*", in.msgs)
	}
	return err
}

// concerns reports whether a permission violation names the subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// isUnserved reports whether an answer means that nobody listens on the subject of the
// request.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
