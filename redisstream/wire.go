package redisstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
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
type wire struct {
	backend *broker
	wait    time.Duration        // longest wait for an answer, or for the next piece of an answer
	onDone  func()               // called when the context of a call is done; nil unless a member owns the wire
	sent    atomic.Bool          // the call has written a command
	took    atomic.Bool          // a detour has passed the call to the wire, so sent is right
	line    atomic.Pointer[conn] // the connection to which the last command was written; nil after it was closed

	trip trip // memory for publishing

	mu      sync.Mutex
	clients map[*redis.Client]*redis.Client // the clients of the wire, by the client of the program for the same server
	conns   map[*conn]struct{}
	master  int64  // value of broker.masters when the call began
	call    uint64 // number of the current or last call
	cut     bool   // the current call was cut off
	ended   bool   // all later calls fail
}

func newWire(b *broker, wait time.Duration) *wire {
	return &wire{backend: b, wait: wait, clients: map[*redis.Client]*redis.Client{}, conns: map[*conn]struct{}{}}
}

const (
	// poolRoom is the number of connections that the pool of a client may have. A wire uses
	// only one of them. The number is large because go-redis stops dialing for up to a
	// second after so many failed dials.
	poolRoom    = 64
	smallBuffer = 4 << 10 // bytes of the write buffer of the wire of a member, whose commands are short
)

// client returns the client of the wire for the server of node. It makes the client if
// there is none.
func (w *wire) client(node *redis.Client) *redis.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clients[node]; c != nil {
		return c
	}
	o := *node.Options()
	o.Dialer, o.OnConnect = w.dialer(o.Dialer), w.greeted(o.OnConnect)
	o.Protocol, o.MaxRetries, o.DialerRetries = 2, -1, 1
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxConcurrentDials, o.PipelinePoolSize = poolRoom, 0, 1, 0, 0, -1
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = w.wait, w.wait, false // the wire checks the context
	if w.onDone != nil {
		o.WriteBufferSize = smallBuffer
	}
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor, o.ClientSideCache, o.ClientSideCacheConfig, o.Limiter = nil, nil, nil, nil
	w.clients[node] = redis.NewClient(&o)
	return w.clients[node]
}

var errNoCall = &net.OpError{Op: "dial", Err: errors.New("the call has ended, or the master was replaced")}

// dialer returns a function that dials by dial, and adds the connection to the wire.
func (w *wire) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		master := w.backend.masters.Load()
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cut || w.ended || master != w.backend.masters.Load() {
			_ = inner.Close() // no command was sent on it
			return nil, errNoCall
		}
		c := &conn{Conn: inner, wire: w}
		w.conns[c] = struct{}{}
		return c, nil
	}
}

// greeted returns the hook that go-redis calls after the greeting of a new connection. The
// hook marks all connections of the wire as ready. If one of them is still in its greeting,
// the rest of its greeting counts as a sent command. For the wire of a member, the hook
// asks the server for the id of the connection. Without an id, unblock cannot wake a read.
func (w *wire) greeted(hook func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) (err error) {
		if hook != nil {
			err = hook(ctx, c)
		}
		var id int64
		if w.onDone != nil && err == nil {
			id, err = c.ClientID(ctx).Result()
			if _, answered := errors.AsType[redis.Error](err); answered {
				err = nil
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for c := range w.conns {
			if err == nil && !c.ready.Load() {
				c.id = id
				c.ready.Store(true)
			}
		}
		return err
	}
}

// do runs call, with a context that tells detours to use the wire. If ctx ends first, do
// closes the connections after grace.
func (w *wire) do(ctx context.Context, grace time.Duration, call func(context.Context) error) error {
	number, err := w.begin(ctx)
	if err != nil {
		return err
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			time.AfterFunc(grace, func() { w.cutOff(number) })
			if w.onDone != nil {
				w.onDone()
			}
		})()
	}
	return call(context.WithValue(ctx, wireKey{}, w))
}

// begin begins a call and returns its number. If Sentinel may have replaced the master,
// begin closes the connections to the old master.
func (w *wire) begin(ctx context.Context) (number uint64, err error) {
	w.sent.Store(false)
	w.took.Store(false)
	err = w.backend.watchMaster(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call++
	w.cut = false
	if master := w.backend.masters.Load(); master != w.master {
		w.master = master
		w.hangUp()
	}
	return w.call, err
}

// hangUp closes all connections. go-redis sees that they are closed, and dials again. The
// caller holds the lock mu.
func (w *wire) hangUp() {
	for c := range w.conns {
		c.closed.Store(true)
		_ = c.Conn.Close() // a read or write under way on it returns an error
	}
	clear(w.conns)
	w.line.Store(nil)
}

// cutOff ends the call with this number, if it is the current one, by closing the
// connections.
func (w *wire) cutOff(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number == w.call {
		w.cut = true
		w.hangUp()
	}
}

// end ends the current call, by closing the connections, and makes later calls fail.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.hangUp()
}

// close closes the connections and the clients of the wire. No call may be under way.
func (w *wire) close() (err error) {
	w.end()
	for _, c := range w.clients {
		if e := c.Close(); !errors.Is(e, redis.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
