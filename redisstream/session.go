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

// A session owns the connections of one call at a time: a single one, or in Cluster one for each
// node. Because no other call uses them, they can be closed when the call's context ends, and
// the session knows whether the call has sent a command.
//
// A call still goes through the program's client, for the sake of its hooks and its Cluster
// routing. The innermost hook, a sessionHook, hands the commands to a client of the session.
type session struct {
	broker    *broker
	timeout   time.Duration // how long to wait for a reply, or for the next piece of one
	grace     time.Duration // how long to wait for a reply once the context of a call is done
	onDone    func()        // called when the context of a call is done; nil unless the session is one of readerPool
	batch     publishBatch  // kept for its memory
	sendState atomic.Int32  // of the commands of the current call

	// Connections are numbered as they are dialed. The handshakes of all connections up to
	// ready have ended, so whatever is written to them later is a command. If a connection
	// with a lower number is still in its handshake, the rest of that counts as a command.
	dialed, ready atomic.Int64

	mu      sync.Mutex
	clients map[*redis.Client]*nodeClient // by the program's client for the same server
	epoch   int64                         // broker.masterEpoch when the call began
	call    uint64                        // number of the current or last call
	closed  bool                          // the clients are closed; the next call makes new ones
	ended   bool                          // all later calls fail
	busy    bool                          // a call is in progress
}

// A nodeClient is the client of a session for one server.
type nodeClient struct {
	*redis.Client
	lastUsed time.Time // when a call last asked for it; only in Cluster
	id       int64     // the connection's ID at the server, for the session of a reader; 0 if unknown
}

// The states of the commands of a call.
const (
	notRouted int32 = iota // no sessionHook has seen them, so the program's client may have sent them
	routed                 // the session has them, and has not written any
	written                // the session has written some of them
)

func newSession(b *broker, wait time.Duration) *session {
	s := &session{broker: b, timeout: wait, clients: map[*redis.Client]*nodeClient{}}
	b.all.Store(s, true)
	return s
}

// mayHaveSent reports whether the server may have received a command of the call. It is true even
// if no sessionHook has seen the call, because a Cluster node that the client knew before New may
// lack the hook, and one of the program's own hooks may have replaced the context.
func (s *session) mayHaveSent() bool { return s.sendState.Load() != routed }

const smallBuffer = 4 << 10 // bytes of the write buffer of a reader, whose commands are short

// client returns the session's client for the server of node, and makes it if there is none.
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
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = s.timeout, s.timeout, false // the session watches the context
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

// touch records the use of nc in Cluster, where prune closes unused clients.
func (nc *nodeClient) touch(s *session) {
	if s.broker.cluster != nil {
		nc.lastUsed = time.Now()
	}
}

// prune closes the clients that no call has used since the given time, unless a call is in
// progress.
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

// dialer returns a function that dials with dial and makes the connection one of the session. A
// failed dial yields a deadConn.
func (s *session) dialer(nc *nodeClient, dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		s.mu.Lock()
		nc.id = 0 // the previous connection has ended
		s.mu.Unlock()
		inner, err := dial(ctx, network, addr)
		if _, dead := inner.(deadConn); dead || err != nil {
			return inner, err
		}
		return checked(&conn{Conn: inner, session: s, number: s.dialed.Add(1)}, inner), nil
	}
}

var errReplaced = &net.OpError{Op: "dial", Err: errors.New("the master was replaced meanwhile")}

// handshake returns the function that go-redis calls at the end of a new connection's
// handshake. It rejects a master that was replaced since the call began. For a reader, it also
// asks the server for the connection's ID, without which unblock cannot wake a read.
func (s *session) handshake(nc *nodeClient, hook func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) (err error) {
		if hook != nil {
			err = hook(ctx, c)
		}
		var id int64
		if s.onDone != nil && err == nil {
			if id, err = c.ClientID(ctx).Result(); isReply(err) {
				err = nil // without the permission, the ID stays unknown
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

// id returns the ID of the connection to the server of node, or 0 if it is unknown.
func (s *session) id(node *redis.Client) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nc := s.clients[node]; nc != nil {
		return nc.id
	}
	return 0
}

// do runs call with a context that carries this session, so that every sessionHook sends the
// call's commands through it. If ctx ends first, do closes the connections after the session's
// grace period.
func (s *session) do(ctx context.Context, call func(context.Context) error) error {
	number, err := s.begin(ctx)
	if err != nil {
		return err
	}
	onDone := s.onDone // the function below may run after this call
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(s.grace, func() { s.abort(number) })
		if onDone != nil {
			onDone()
		}
	})()
	defer s.finish()
	return call(context.WithValue(ctx, sessionKey{}, s))
}

// finish records that no call is in progress.
func (s *session) finish() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// begin begins a call and returns its number. If Sentinel may have replaced the master, the call
// gets new connections.
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

// closeAll closes the connections, which makes a call in progress fail. The caller holds mu.
func (s *session) closeAll() {
	s.closed = true
	for _, nc := range s.clients {
		_ = nc.Close()
	}
}

// abort ends the call with this number, if it is the current one.
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

// end ends the current call, and makes all later calls fail.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.broker.all.Delete(s)
	s.closeAll()
}

// A conn is a connection of a session. It records that a command was written. Each piece of a
// command or a reply gets a deadline of its own, because a slow network does not mean that the
// server hangs.
type conn struct {
	net.Conn
	session *session
	number  int64 // see session.ready
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

// A deadConn stands for a connection that could not be made: its first use fails with the error
// of the dial. If go-redis saw the failed dial itself, it would write to the logger of the whole
// process, and after some of them it would refuse to dial for up to a second.
type deadConn struct {
	net.Conn // nil
	err      error
}

// quietly returns a function that dials with dial and turns an error into a deadConn.
func quietly(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return deadConn{err: err}, nil //nolint:nilerr // the connection reports it
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

// A checkedConn gives go-redis access to the connection of the operating system, where it checks
// whether the server has closed the connection before it writes to it.
type checkedConn struct {
	net.Conn
	system syscall.Conn
}

// SyscallConn implements [syscall.Conn].
func (c checkedConn) SyscallConn() (syscall.RawConn, error) { return c.system.SyscallConn() }

// checked returns outer as a checkedConn if inner has a connection of the operating system. For
// TLS this is the connection underneath. Checking that one is safe, because a server never sends
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

// A readerPool holds the sessions for blocking reads. A member holds one only during Receive, so
// members that read in turn share sessions. There are never more sessions than members.
type readerPool struct {
	mu      sync.Mutex
	idle    []*session // a stack: the session used last is reused first
	lent    int
	members int
}

// addMember makes room for the session of one more member.
func (r *readerPool) addMember() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members++
}

// removeMember takes that room back, and ends a session that no member needs anymore.
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

// acquire gives s a session for one Receive. It returns false if s is closed.
func (r *readerPool) acquire(s *source) bool {
	sess := r.get(&s.backend.broker)
	sess.onDone = s.unblock
	s.mu.Lock()
	s.reader = sess
	s.mu.Unlock()
	if s.closed.Load() { // close may have missed the session
		r.release(s)
		return false
	}
	return true
}

// release takes the session of s back after a Receive.
func (r *readerPool) release(s *source) {
	s.mu.Lock()
	sess := s.reader
	s.reader = nil
	s.mu.Unlock()
	r.put(sess)
}

// get lends a session for one read.
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

// put takes a session back after its read.
func (r *readerPool) put(sess *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent--
	if !sess.hasEnded() {
		r.idle = append(r.idle, sess)
	}
	r.trim()
}
