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

// A wire has the connections of one call at a time: one, or in Cluster one to each node.
// No other call uses them, so they can be cut when the call's context ends, and it is
// known whether anything was sent.
//
// A call goes through the lent client, with its hooks and, in Cluster, its routing. The
// innermost hook, a detour, passes it to a client of the wire's own.
type wire struct {
	backend *broker
	wait    time.Duration        // the longest wait for an answer, or for the next piece of it
	onDone  func()               // called when a call's context is done; only a member's wire has it
	sent    atomic.Bool          // a command was written since the call began
	took    atomic.Bool          // the call came to a detour, so sent can be relied on
	line    atomic.Pointer[conn] // the connection that a command was written to last, while it is open

	trip trip // memory for publishing

	mu      sync.Mutex
	clients map[*redis.Client]*redis.Client // the wire's own, by the lent client of the server
	conns   map[*conn]struct{}
	master  int64  // the broker's masters when the call began
	call    uint64 // number of the call
	cut     bool   // the call has been cut off
	ended   bool   // no more calls
}

func newWire(b *broker, wait time.Duration) *wire {
	return &wire{backend: b, wait: wait, clients: map[*redis.Client]*redis.Client{}, conns: map[*conn]struct{}{}}
}

const (
	// poolRoom is the number of connections that a client of a wire may have, though it
	// uses one. After so many failed dials go-redis does not dial for up to a second.
	poolRoom    = 64
	smallBuffer = 4 << 10 // bytes of the write buffer of a member, whose commands are short
)

// client returns the wire's own client for the server of node.
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

// dialer returns a dialer for connections of the wire, which uses dial.
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
			_ = inner.Close() // nothing was sent on it
			return nil, errNoCall
		}
		c := &conn{Conn: inner, wire: w}
		w.conns[c] = struct{}{}
		return c, nil
	}
}

// greeted returns the hook that go-redis calls after it has greeted a connection. The hook
// marks all connections of the wire as ready. If another connection is still being greeted,
// its greeting counts as a sent command. The wire of a member learns the id of the connection
// at the server. Without an id, unblock cannot wake a read.
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

// do makes one call, with a context by which a detour finds the wire. If ctx ends before the
// call, do cuts the connections after grace.
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

// begin begins a call. If Sentinel may have replaced the master, it closes the connections.
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

// hangUp closes the connections. go-redis finds them closed and dials again. The caller
// holds mu.
func (w *wire) hangUp() {
	for c := range w.conns {
		c.closed.Store(true)
		_ = c.Conn.Close() // a read or write on it returns
	}
	clear(w.conns)
	w.line.Store(nil)
}

// cutOff ends the call with this number, if it is still under way.
func (w *wire) cutOff(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number == w.call {
		w.cut = true
		w.hangUp()
	}
}

// end cuts off the call under way, and makes later calls fail.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.hangUp()
}

// close frees the connections. No call is under way.
func (w *wire) close() (err error) {
	w.end()
	for _, c := range w.clients {
		if e := c.Close(); !errors.Is(e, redis.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
