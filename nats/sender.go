package nats

import (
	"errors"
	"slices"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// A sender passes the messages of all calls to the client library. The functions of the
// library take no context, and may block while it dials or writes. So only the goroutine of
// the sender calls them, and a caller can leave when its context is done.
type sender struct {
	conn   *natsgo.Conn
	status chan natsgo.Status // gets a status when the connection is lost
	wake   chan struct{}      // gets an element when the queue is no longer empty
	ended  chan struct{}      // closed when the goroutine has ended

	mu     sync.Mutex
	queue  []*sending
	losses int           // number of lost connections
	lost   chan struct{} // closed at the next loss of the connection
	closed bool

	// Memory for one message after another. Only the goroutine uses it.
	message natsgo.Msg
	values  []string
}

// A sending is a part of a call for the goroutine of the sender. After send, the caller
// uses only the channels.
type sending struct {
	inbox  *inbox     // receives the answers; nil if there are none
	out    []outgoing // messages to send, in this order
	losses int        // sent only if the sender has counted as many lost connections; -1: always sent
	do     func()     // if set, the goroutine calls it, and sends nothing

	lost    chan struct{} // closed when the connection is lost, after which no answer comes
	failed  chan []error  // gets, for each message, an error if it was certainly not sent, or else nil
	refused chan error    // gets a permission violation that the server reported after sending

	before error // last error of the connection before this sending
	begun  bool  // the goroutine has begun to send; guarded by sender.mu
}

// An outgoing is a message to send. It has no memory that its caller may change.
type outgoing struct {
	subject, reply string
	header         backend.Headers // names and values as stored
	data           []byte
}

// An inbox receives the messages for one requester or source.
type inbox struct {
	prefix string // beginning of the reply subjects of the inbox
	msgs   chan *natsgo.Msg

	sub *natsgo.Subscription // only the sender's goroutine uses it; nil before the first sending
}

// newInbox returns an inbox with a channel of room messages. While it is full, the library
// drops further messages.
func newInbox(conn *natsgo.Conn, room int) *inbox {
	return &inbox{prefix: conn.NewInbox() + ".", msgs: make(chan *natsgo.Msg, room)}
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

func newSending(in *inbox, out []outgoing) *sending {
	return &sending{inbox: in, out: out, losses: -1, failed: make(chan []error, 1), refused: make(chan error, 1)}
}

// send queues c without waiting.
func (s *sender) send(c *sending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.lost = s.lost
	if s.closed {
		if c.do != nil {
			go func() { <-s.ended; c.do() }() // the connection may be lent, and outlive s
		}
		c.fail(backend.ErrClosed)
		return
	}
	s.queue = append(s.queue, c)
	s.rouse()
}

// later queues a function for the goroutine without waiting.
func (s *sender) later(do func()) { s.send(&sending{do: do, losses: -1}) }

// leave tells the sender that the caller of c no longer waits. It returns true if no
// message of c was or will be sent.
func (s *sender) leave(c *sending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.begun {
		s.queue = slices.DeleteFunc(s.queue, func(q *sending) bool { return q == c })
	}
	return !c.begun
}

// hasBegun reports whether c was sent, or is being sent.
func (s *sender) hasBegun(c *sending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.begun
}

// lossCount returns how often the connection was lost so far.
func (s *sender) lossCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.losses
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
		select {
		case <-s.wake:
		case <-s.status:
			s.noteLoss()
		}
		for s.hasMore() {
			connected := s.conn.IsConnected() // may block; c is not begun yet, so its caller can leave
			if c := s.next(); c != nil {
				c.run(s, connected)
			}
		}
		if s.isOver() {
			return
		}
	}
}

// hasMore counts lost connections. It reports whether the queue has an element.
func (s *sender) hasMore() bool {
	for len(s.status) > 0 {
		<-s.status
		s.noteLoss()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil // free its memory
	}
	return len(s.queue) > 0
}

// next takes the first element of the queue. It returns nil if the queue is empty, because
// callers have left.
func (s *sender) next() *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	c := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	c.begun = true
	return c
}

func (s *sender) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && len(s.queue) == 0
}

func (s *sender) noteLoss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses++
	close(s.lost)
	s.lost = make(chan struct{})
}

func (c *sending) run(s *sender, connected bool) {
	switch {
	case c.do != nil:
		c.do()
		return
	case c.losses >= 0 && c.losses != s.lossCount():
		c.fail(errConnectionLost)
		return
	case !connected:
		c.fail(errNotConnected)
		return
	}
	if in := c.inbox; in != nil && in.sub == nil {
		sub, err := s.conn.ChanSubscribe(in.prefix+"*", in.msgs)
		if err != nil {
			c.fail(err)
			return
		}
		in.sub = sub
	}
	c.before = s.conn.LastError()
	var errs []error
	n := len(c.out)
	for i := range n {
		if err := s.publish(&c.out[i]); err != nil {
			if errs == nil {
				errs = make([]error, n)
			}
			errs[i] = err
		}
	}
	if errs != nil {
		c.failed <- errs
	}
}

// fail tells the caller that no message of c was sent.
func (c *sending) fail(err error) {
	if c.failed != nil {
		c.failed <- slices.Repeat([]error{err}, len(c.out))
	}
}

func (s *sender) publish(o *outgoing) error {
	switch {
	case o.header != nil:
	case o.reply == "":
		return s.conn.Publish(o.subject, o.data)
	default:
		return s.conn.PublishRequest(o.subject, o.reply, o.data)
	}
	clear(s.message.Header)
	if n := len(o.header); len(s.values) < n {
		s.values = make([]string, n)
	}
	for i, h := range o.header {
		s.values[i] = h.Value
		s.message.Header[h.Name] = s.values[i : i+1 : i+1]
	}
	s.message.Subject, s.message.Reply, s.message.Data = o.subject, o.reply, o.data
	err := s.conn.PublishMsg(&s.message)
	s.message.Data = nil
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

// unsubscribe ends the subscription of an inbox.
func (s *sender) unsubscribe(in *inbox) {
	s.later(func() {
		if in.sub != nil {
			_ = in.sub.Unsubscribe() // the connection may be closed
		}
	})
}

// drain ends the subscription of an inbox without losing messages. The result gets a
// channel, which signals that all messages sent to the inbox have arrived. In a cluster
// drain does nothing, because another server may still send. Then the result gets nothing.
func (s *sender) drain(in *inbox) <-chan (<-chan natsgo.SubStatus) {
	draining := make(chan (<-chan natsgo.SubStatus), 1)
	s.later(func() {
		if in.sub != nil && s.conn.ConnectedClusterName() == "" && in.sub.Drain() == nil {
			draining <- in.sub.StatusChanged(natsgo.SubscriptionClosed)
		}
	})
	return draining
}
