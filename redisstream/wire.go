package redisstream

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/internal/pool"
)

// A wire is a client that one call uses at a time, with one connection, or one
// to each node. Being the call's alone, the connection can be cut when the call's
// context ends, and it is known whether anything was sent.
//
// Every command goes out as one that go-redis never repeats, whatever the options
// of the client that was lent: it repeats a publish whose reply was lost, and a
// read, which then returns the messages that come after those it has lost.
//
// Where the client leads to one server, go-redis connects, greets and makes the
// first call on a connection; those that follow are written and read here, as
// long as the connection is well (straight.go).
type wire struct {
	client redis.UniversalClient
	wait   time.Duration // for an answer, or more of one
	onDone func()        // called when a call's context is done, if not nil
	sent   atomic.Bool   // since the call began a command was written
	dials  atomic.Int64  // connections made so far

	straight bool                 // calls may do without go-redis
	line     atomic.Pointer[conn] // where a command was written last, while it is open
	idle     time.Duration        // after which a connection is not used again, if positive
	life     time.Duration        // the same, since it was made

	trip       trip // memory for publishing
	settlement settlement
	request    request // memory for what is sent
	replies    replies // memory for what is answered, until the next call
	dialog     dialog
	unwatch    func() // ends watching the call's context, if it is watched

	mu    sync.Mutex
	conns map[*conn]struct{}
	call  uint64 // numbers calls
	cut   bool   // the call has been cut off
	ended bool   // no more calls
}

// newWire returns a wire to where lent leads. Reads wait so long for an answer.
func newWire(lent redis.UniversalClient, wait time.Duration) *wire {
	w := &wire{wait: wait, conns: map[*conn]struct{}{}}
	w.client = derive(lent, w, wait)
	return w
}

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
		inner, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := newConn(w, inner)
		w.mu.Lock()
		w.conns[c] = struct{}{}
		err = inner.SetDeadline(w.deadline(time.Time{}))
		w.mu.Unlock()
		w.dials.Add(1)
		return c, err
	}
}

// connected makes the hook that go-redis calls when a connection has been
// greeted. It may be another's: then more counts as sent than was.
func (w *wire) connected(hook func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, c *redis.Conn) error {
		if hook != nil {
			if err := hook(ctx, c); err != nil {
				return err
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for c := range w.conns {
			c.ready.Store(true)
		}
		return nil
	}
}

// do makes one call. When ctx is done the connections are cut, grace later.
func (w *wire) do(ctx context.Context, grace time.Duration, call func()) {
	w.begin()
	defer w.finish()
	w.watch(ctx, grace)
	call()
}

// begin begins a call.
func (w *wire) begin() {
	w.mu.Lock()
	w.call++
	w.cut = false
	w.mu.Unlock()
	w.sent.Store(false)
	w.replies.begin()
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
	if w.unwatch != nil || ctx.Done() == nil {
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
	w.ended = true
	w.expire()
	w.mu.Unlock()
}

// close frees the connections. No call is under way.
func (w *wire) close() error {
	w.end()
	if err := w.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// newWires lends wires to calls, as many as run at the same time.
func newWires(lent redis.UniversalClient) *pool.Pool[*wire] {
	return pool.New(wires, func() (*wire, error) { return newWire(lent, answer), nil }, (*wire).close)
}
