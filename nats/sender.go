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
	queue  []*sending
	lost   chan struct{} // closed at the next loss of the connection; only the goroutine replaces it, and Close after it
	closed bool

	// Memory for one message after another. Only the goroutine uses it.
	message natsgo.Msg
	values  []string
}

// A sending is a part of a call for the goroutine of the sender. After send, the caller
// uses only the channels.
type sending struct {
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
func (s *sender) send(in *inbox, out []outgoing, lost chan struct{}) *sending {
	c := &sending{inbox: in, out: out, lost: lost, failed: make(chan backend.BatchError, 1), refused: make(chan error, 1)}
	s.enqueue(c)
	return c
}

// later queues a function for the goroutine without waiting.
func (s *sender) later(do func()) { s.enqueue(&sending{do: do}) }

func (s *sender) enqueue(c *sending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.closed:
		s.queue = append(s.queue, c)
		s.rouse()
	case c.do != nil:
		go func() { <-s.ended; c.do() }() // the connection may be lent, and outlive s
	default:
		c.fail(backend.ErrClosed)
	}
}

// leave tells the sender that the caller of c no longer waits. It returns true if no
// message of c was or will be sent.
func (s *sender) leave(c *sending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.begun.Load() {
		return false
	}
	s.queue = slices.DeleteFunc(s.queue, func(q *sending) bool { return q == c })
	return true
}

func (s *sender) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close handles the whole queue, then ends the goroutine and waits for its end.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.rouse()
	s.mu.Unlock()
	<-s.ended
}

func (s *sender) run() {
	defer close(s.ended)
	defer s.conn.RemoveStatusListener(s.status)
	for {
		connected := s.conn.IsConnected() // may block; no sending is begun yet, so its caller can leave
		switch c, over := s.next(connected); {
		case c != nil:
			s.handle(c)
		case over:
			return
		default:
			select {
			case <-s.wake:
			case <-s.status:
				s.lose()
			}
		}
	}
}

// next takes the first element of the queue, if there is one, and begins it if it can be sent.
// over means that there will be none.
func (s *sender) next(connected bool) (c *sending, over bool) {
	for len(s.status) > 0 {
		<-s.status
		s.lose()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil // free its memory
		return nil, s.closed
	}
	c, s.queue[0] = s.queue[0], nil
	s.queue = s.queue[1:]
	c.begun.Store(connected && c.lost == s.lost)
	return c, false
}

// lose tells all callers that the connection is lost.
func (s *sender) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.lost)
	s.lost = make(chan struct{})
}

func (s *sender) handle(c *sending) {
	switch {
	case c.do != nil:
		c.do()
		return
	case !c.begun.Load():
		c.fail(errNotConnected)
		return
	}
	if err := c.inbox.subscribe(s.conn); err != nil {
		c.fail(err)
		return
	}
	c.before = s.conn.LastError()
	var failed backend.BatchError
	for i := range c.out {
		failed.Set(i, len(c.out), s.publish(&c.out[i]))
	}
	if failed != nil {
		c.failed <- failed
	}
}

// fail tells the caller that no message of c was sent. An outgoing without a subject is no
// message: it may stand for an earlier one, which has its own result.
func (c *sending) fail(err error) {
	failed := make(backend.BatchError, len(c.out))
	for i := range c.out {
		if c.out[i].subject != "" {
			failed[i] = err
		}
	}
	c.failed <- failed
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
func (s *sender) doubt(c *sending) {
	s.later(func() {
		err := s.conn.LastError()
		if err == c.before || !errors.Is(err, natsgo.ErrPermissionViolation) { //nolint:errorlint // identity: a new violation may have the same text
			return
		}
		select {
		case c.refused <- err:
		default:
		}
	})
}

// A line sends the messages of one call at a time through the sender, and receives their
// answers in an inbox. After an error its next call uses a new inbox, because late answers
// may arrive in the old one.
type line struct {
	sender *sender
	room   int // most messages in the inbox; the library drops further ones
	timer  *time.Timer
	ended  <-chan struct{} // closed when the owner of the line is closed; nil if it waits for no such end

	inbox *inbox   // nil before the first call, and after hangUp
	sent  *sending // the messages of the present call
}

// An inbox is a subscription to all subjects that begin with its prefix.
type inbox struct {
	prefix string
	msgs   chan *natsgo.Msg

	sub *natsgo.Subscription // only the sender's goroutine uses it; nil before the first sending
}

func newLine(s *sender, room int, ended <-chan struct{}) line {
	return line{sender: s, room: room, ended: ended, timer: time.NewTimer(time.Hour)}
}

// open makes an inbox, unless there is one.
func (l *line) open() {
	if l.inbox == nil {
		l.inbox = &inbox{prefix: l.sender.conn.NewInbox() + ".", msgs: make(chan *natsgo.Msg, l.room)}
	}
}

// wait returns the next message for the inbox, or nil if none comes for the time pause. The
// error is a [backend.BatchError] if some messages were not sent, a permission violation,
// or the reason for which no message comes.
func (l *line) wait(ctx context.Context, pause time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-l.inbox.msgs: // tried first without a timer, because messages often come together
		return m, nil
	default:
	}
	l.timer.Reset(pause)
	select {
	case m := <-l.inbox.msgs:
		return m, nil
	case failed := <-l.sent.failed:
		return nil, failed
	case violation := <-l.sent.refused:
		return nil, violation
	case <-l.timer.C:
		l.sender.doubt(l.sent)
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.sent.lost:
		return nil, errConnectionLost
	case <-l.ended:
		return nil, backend.ErrClosed
	}
}

// hangUp ends the inbox.
func (l *line) hangUp() {
	if in := l.inbox; in != nil {
		l.inbox = nil
		l.sender.later(func() {
			if in.sub != nil {
				_ = in.sub.Unsubscribe() // the connection may be closed
			}
		})
	}
}

// drain ends the subscription without losing messages. The result gets an element when all
// messages sent to the inbox have arrived. In a cluster drain does nothing, because another
// server may still send.
func (l *line) drain() <-chan struct{} {
	in, conn, drained := l.inbox, l.sender.conn, make(chan struct{}, 1)
	l.sender.later(func() {
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
