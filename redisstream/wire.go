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

// A wire is the connections of one call at a time: one, or in Cluster one to each
// node. Being the call's alone, they can be cut when the call's context ends, and it is
// known whether anything was sent.
//
// A call goes through the lent client: its hooks and, in Cluster, its routing. The
// innermost hook, a detour, hands it to a client of the wire's own.
type wire struct {
	backend *Backend
	wait    time.Duration        // for an answer, or more of one
	onDone  func()               // called when a call's context is done; only a member's wire has it
	sent    atomic.Bool          // since the call began a command was written
	took    atomic.Bool          // since the call began it came to a detour
	line    atomic.Pointer[conn] // where a command was written last, while it is open

	trip    trip  // memory for publishing
	mine    []int // memory for settling
	args    []any
	unwatch func() // ends watching the call's context, if it is watched

	mu      sync.Mutex
	clients map[*redis.Client]*redis.Client // the wire's own, by the lent client of the server
	conns   map[*conn]struct{}
	master  int64  // the Backend's count of masters when the call began
	call    uint64 // numbers calls
	cut     bool   // the call has been cut off
	ended   bool   // no more calls
}

func newWire(b *Backend, wait time.Duration) *wire {
	return &wire{backend: b, wait: wait, clients: map[*redis.Client]*redis.Client{}, conns: map[*conn]struct{}{}}
}

// poolRoom is how many connections a client of a wire has room for, of which it uses
// one: after as many failed dials go-redis does not dial for up to a second.
const poolRoom = 64

// client returns the wire's own client of the server that node leads to.
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
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = w.wait, w.wait, false // the wire looks after the context
	if w.onDone != nil {
		o.WriteBufferSize = smallBuffer
	}
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PushNotificationProcessor, o.ClientSideCache, o.ClientSideCacheConfig, o.Limiter = nil, nil, nil, nil
	c := redis.NewClient(&o)
	w.clients[node] = c
	return c
}

// smallBuffer is for what a member writes: a read, or a call of a script.
const smallBuffer = 4 << 10

// deadline is t, or long ago. The caller holds mu.
func (w *wire) deadline(t time.Time) time.Time {
	if w.cut || w.ended {
		return longAgo
	}
	return t
}

// dialer makes connections of the wire with dial.
func (w *wire) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		master := w.backend.masters.Load()
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, wire: w}
		w.mu.Lock()
		w.conns[c] = struct{}{}
		err = inner.SetDeadline(w.deadline(time.Time{}))
		w.mu.Unlock()
		if master != w.backend.masters.Load() { // it may lead to the master before
			return nil, errors.Join(errMasterChanged, c.Close())
		}
		return c, err
	}
}

var errMasterChanged = &net.OpError{Op: "dial", Err: errors.New("the master was replaced")}

// greeted makes the hook that go-redis calls when a connection has been greeted. It
// may be another's: then more counts as sent than was. A member's wire learns by which
// id the server knows the connection. Without an id, a read is not woken.
func (w *wire) greeted(hook func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) (err error) {
		if hook != nil {
			if err := hook(ctx, c); err != nil {
				return err
			}
		}
		var id int64
		if w.onDone != nil {
			id, err = c.ClientID(ctx).Result()
			if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
				return err
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for c := range w.conns {
			if !c.ready.Load() {
				c.id = id
				c.ready.Store(true)
			}
		}
		return nil
	}
}

// do makes one call, by a context that leads to the wire. When ctx is done the
// connections are cut, grace later.
func (w *wire) do(ctx context.Context, grace time.Duration, call func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	w.watch(ctx, grace)
	defer w.finish()
	return call(context.WithValue(ctx, wireKey{}, w))
}

// begin begins a call. After the master was replaced, it begins with no connection.
func (w *wire) begin(ctx context.Context) error {
	w.sent.Store(false)
	w.took.Store(w.backend.cluster == nil)
	err := w.backend.watchMaster(ctx)
	var old []*conn
	w.mu.Lock()
	w.call++
	w.cut = false
	if master := w.backend.masters.Load(); master != w.master {
		w.master = master
		for c := range w.conns {
			old = append(old, c)
		}
	}
	w.mu.Unlock()
	for _, c := range old {
		_ = c.Close() // go-redis finds it closed, and connects anew
	}
	return err
}

// finish ends it.
func (w *wire) finish() {
	if w.unwatch != nil {
		w.unwatch()
		w.unwatch = nil
	}
}

// watch cuts off the call when ctx is done, grace later.
func (w *wire) watch(ctx context.Context, grace time.Duration) {
	if ctx.Done() == nil {
		return
	}
	call := w.call
	var timer atomic.Pointer[time.Timer]
	undo := context.AfterFunc(ctx, func() {
		if grace == 0 {
			w.cutOff(call)
		} else {
			timer.Store(time.AfterFunc(grace, func() { w.cutOff(call) }))
		}
		if w.onDone != nil {
			w.onDone()
		}
	})
	w.unwatch = func() {
		if undo() {
			return
		}
		if t := timer.Load(); t != nil {
			t.Stop()
		}
	}
}

// cutOff ends a call, if it is still the one under way.
func (w *wire) cutOff(call uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call == w.call {
		w.cut = true
		w.expire()
	}
}

// expire lets what waits on a connection fail. The caller holds mu.
func (w *wire) expire() {
	for c := range w.conns {
		_ = c.Conn.SetDeadline(longAgo) // it fails only if closed
	}
}

// end cuts off what is under way, and whatever comes after it.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.expire()
}

// close frees the connections. No call is under way.
func (w *wire) close() (err error) {
	w.end()
	for _, c := range w.clients {
		if e := c.Close(); e != nil && !errors.Is(e, redis.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
