package redisstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A wire has the connections of one call at a time: one connection, or in Cluster one for
// each node. Other calls do not use them. So they can be closed when the context of the
// call ends, and the wire knows whether the call has sent a command.
//
// A call goes through the lent client, to use its hooks and its routing in Cluster. The
// innermost hook, a detour, passes the call to a client that belongs to the wire.
type session struct {
	broker    *broker
	timeout   time.Duration // longest wait for an answer, or for the next piece of an answer
	grace     time.Duration // longest wait for an answer after the context of a call is done
	onDone    func()        // called when the context of a call is done; nil unless the wire is one of readers
	batch     publishBatch  // memory for publishing
	sendState atomic.Int32  // of the commands of the current call

	// Connections are numbered as they are dialed. The greetings of all connections up to
	// greeted have ended, so later writes are commands. If a connection with a lower number
	// is still in its greeting, the rest of its greeting counts as a command.
	dialed, ready atomic.Int64

	mu      sync.Mutex
	clients map[*redis.Client]*nodeClient // by the client of the program for the same server
	epoch   int64                         // value of broker.masters when the call began
	call    uint64                        // number of the current or last call
	closed  bool                          // the lines are closed; the next call gets new ones
	ended   bool                          // all later calls fail
	busy    bool                          // a call is under way
}

// A line is the client of a wire for one server.
type nodeClient struct {
	*redis.Client
	lastUsed time.Time // when a call last asked for it, in Cluster
	id       int64     // the connection's id at the server, for the wire of a member; 0 if not known
}

// The fates of the commands of a call.
const (
	notRouted int32 = iota // no detour has seen them, so the lent client may have sent them
	routed                 // they are with the wire, which has not written any
	written                // the wire has written some of them
)

func newSession(b *broker, wait time.Duration) *session {
	s := &session{broker: b, timeout: wait, clients: map[*redis.Client]*nodeClient{}}
	b.all.Store(s, true)
	return s
}

// maySent reports whether the server may have a command of the call. It may if no detour
// saw the call. A Cluster node that the lent client knew before New may have no detour. A
// hook of the program may have replaced the context.
func (s *session) mayHaveSent() bool { return s.sendState.Load() != routed }

const smallBuffer = 4 << 10 // bytes of the write buffer of the wire of a member, whose commands are short

// client returns the client of the wire for the server of node. It makes the client if
// there is none.
func (s *session) client(node *redis.Client) *redis.Client {
	s.sendState.CompareAndSwap(notRouted, routed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if nc := s.clients[node]; nc != nil {
		nc.touch(s)
		return nc.Client
	}
	nc, o := &nodeClient{}, *node.Options()
	nc.touch(s)
	o.Dialer, o.OnConnect = s.dialer(nc, quietly(o.Dialer)), s.handshake(nc, o.OnConnect)
	o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials, o.PipelinePoolSize = 1, 0, 1, 0, 0, -1
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = s.timeout, s.timeout, false // the wire checks the context
	if s.onDone != nil {
		o.WriteBufferSize = smallBuffer
	}
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor, o.ClientSideCache, o.ClientSideCacheConfig, o.Limiter = nil, nil, nil, nil
	nc.Client = redis.NewClient(&o)
	s.clients[node] = nc
	if s.closed || s.ended {
		_ = nc.Close() // so that commands to it fail
	}
	return nc.Client
}

// touch records the use of l, in Cluster, where prune closes unused lines.
func (nc *nodeClient) touch(s *session) {
	if s.broker.cluster != nil {
		nc.lastUsed = time.Now()
	}
}

// prune closes the lines that no call has used since a moment, unless a call is under way.
func (s *session) prune(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, nc := range s.clients {
		if !s.busy && nc.lastUsed.Before(since) {
			_ = nc.Close()
			delete(s.clients, node)
		}
	}
}

// dialer returns a function that dials by dial, and makes the connection one of the wire. A
// failed dial makes a dead connection.
func (s *session) dialer(nc *nodeClient, dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.mu.Lock()
		nc.id = 0 // the connection before has ended
		s.mu.Unlock()
		inner, err := dial(ctx, network, addr)
		if _, dead := inner.(deadConn); dead || err != nil {
			return inner, err
		}
		return checked(&conn{Conn: inner, session: s, number: s.dialed.Add(1)}, inner), nil
	}
}

var errReplaced = &net.OpError{Op: "dial", Err: errors.New("the master was replaced meanwhile")}

// greeting returns the function that go-redis calls at the end of the greeting of a new
// connection. The function refuses a master that was replaced since the call began. For the
// wire of a member, it asks the server for the id of the connection. Without an id, unblock
// cannot wake a read.
func (s *session) handshake(nc *nodeClient, hook func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) (err error) {
		if hook != nil {
			err = hook(ctx, c)
		}
		var id int64
		if s.onDone != nil && err == nil {
			if id, err = c.ClientID(ctx).Result(); isReply(err) {
				err = nil // a client without permission has no id
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && s.broker.masterEpoch.Load() != s.epoch {
			err = errReplaced
		}
		if err == nil {
			nc.id = id
			s.ready.Store(s.dialed.Load())
		}
		return err
	}
}

// id returns the id of the connection to the server of node, or 0 if it is not known.
func (s *session) id(node *redis.Client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nc := s.clients[node]; nc != nil {
		return nc.id
	}
	return 0
}

// do runs call, with a context that tells detours to use the wire. If ctx ends first, do
// closes the connections after the wire's grace.
func (s *session) do(ctx context.Context, call func(context.Context) error) error {
	number, err := s.begin(ctx)
	if err != nil {
		return err
	}
	onDone := s.onDone // of this call, because the function below may run after it
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(s.grace, func() { s.abort(number) })
		if onDone != nil {
			onDone()
		}
	})()
	defer s.finish()
	return call(context.WithValue(ctx, sessionKey{}, s))
}

// rest records that no call is under way.
func (s *session) finish() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// begin begins a call and returns its number. It leaves the lines to a master that Sentinel
// may have replaced.
func (s *session) begin(ctx context.Context) (number uint64, err error) {
	s.sendState.Store(notRouted)
	s.broker.prune()
	err = s.broker.ensureSentinelConn(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call++
	s.busy = err == nil
	if master := s.broker.masterEpoch.Load(); s.closed || master != s.epoch {
		s.closeAll()
		clear(s.clients)
		s.epoch, s.closed = master, false
	}
	return s.call, err
}

// hangUp closes the connections. A call under way then fails. The caller holds the lock mu.
func (s *session) closeAll() {
	s.closed = true
	for _, nc := range s.clients {
		_ = nc.Close()
	}
}

// cutOff ends the call with this number, if it is the current one.
func (s *session) abort(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == s.call {
		s.closeAll()
	}
}

// hasEnded reports whether end was called.
func (s *session) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// end ends the current call, and makes later calls fail.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.broker.all.Delete(s)
	s.closeAll()
}

// A conn is a connection of a wire. It notes that a command was written. It gives each
// piece of a command or an answer a deadline of its own, because a slow line does not mean
// that the server hangs.
type conn struct {
	net.Conn
	session *session
	number  int64 // see wire.greeted
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && err == nil {
		err = c.SetReadDeadline(time.Now().Add(c.session.timeout))
	}
	return n, err
}

const maxWrite = 256 << 10 // bytes of one write

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (n int, err error) {
	if c.number <= c.session.ready.Load() {
		c.session.sendState.Store(written)
	}
	for n < len(p) && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(c.session.timeout)); err == nil {
			var k int
			k, err = c.Conn.Write(p[n:min(n+maxWrite, len(p))])
			n += k
		}
	}
	return n, err
}

// A deadConn stands for a connection that could not be made. Its first use fails with the
// error of the dial. go-redis would write a failed dial to the logger of the whole process.
// After some failed dials it would also refuse to dial for up to a second.
type deadConn struct {
	net.Conn // nil
	err      error
}

// quietly returns a function that dials by dial, and returns a deadConn in place of an error.
func quietly(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return deadConn{err: err}, nil //nolint:nilerr // the connection returns it
		}
		return c, nil
	}
}

func (c deadConn) Read([]byte) (int, error) { return 0, c.err }

func (c deadConn) Write([]byte) (int, error) { return 0, c.err }

func (c deadConn) Close() error { return nil }

func (c deadConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

func (c deadConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (c deadConn) SetDeadline(time.Time) error { return nil }

func (c deadConn) SetReadDeadline(time.Time) error { return nil }

func (c deadConn) SetWriteDeadline(time.Time) error { return nil }

// A checkedConn shows go-redis the connection of the operating system. go-redis looks there
// whether the server has closed a connection, before it writes to it.
type checkedConn struct {
	net.Conn
	system syscall.Conn
}

// SyscallConn implements [syscall.Conn].
func (c checkedConn) SyscallConn() (syscall.RawConn, error) { return c.system.SyscallConn() }

// checked returns outer as a checkedConn, if inner has a connection of the operating system.
// For TLS this is the connection below. go-redis may look at it, because a server sends no
// data unasked.
func checked(outer, inner net.Conn) net.Conn {
	const maxLayers = 8
	for range maxLayers {
		if system, ok := inner.(syscall.Conn); ok {
			return checkedConn{outer, system}
		}
		layer, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = layer.NetConn()
	}
	return outer
}

// readers are the wires for reads that wait. A member uses one during Receive, so that members
// that read in turn share wires. There are at most as many as members.
type readerPool struct {
	mu      sync.Mutex
	idle    []*session // the one used last is used first
	lent    int
	members int
}

// join adds a member.
func (r *readerPool) addMember() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
}

// leave removes a member, and ends the wires for which there is none any more.
func (r *readerPool) removeMember() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members--
	r.trim()
}

func (r *readerPool) trim() {
	for len(r.idle) > 0 && len(r.idle)+r.lent > r.members {
		last := len(r.idle) - 1
		r.idle[0].end()
		copy(r.idle, r.idle[1:])
		r.idle[last], r.idle = nil, r.idle[:last]
	}
}

// open lends a wire to s for a Receive. It returns false if s is closed.
func (r *readerPool) acquire(s *source) bool {
	sess := r.get(&s.backend.broker)
	sess.onDone = s.unblock
	s.mu.Lock()
	s.reader = sess
	s.mu.Unlock()
	if s.closed.Load() { // close has not seen the wire
		r.release(s)
		return false
	}
	return true
}

// close takes the wire of s back after a Receive.
func (r *readerPool) release(s *source) {
	s.mu.Lock()
	sess := s.reader
	s.reader = nil
	s.mu.Unlock()
	r.put(sess)
}

// get lends a wire for one read.
func (r *readerPool) get(b *broker) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent++
	if last := len(r.idle) - 1; last >= 0 {
		sess := r.idle[last]
		r.idle[last], r.idle = nil, r.idle[:last]
		return sess
	}
	sess := newSession(b, blockTime+replyGrace)
	sess.grace = cancelGrace
	return sess
}

// put takes a wire back after its read.
func (r *readerPool) put(sess *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent--
	if !sess.hasEnded() {
		r.idle = append(r.idle, sess)
	}
	r.trim()
}
