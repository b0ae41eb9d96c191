package redisstream

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// What is decided here, and why, is in docs/decisions/008-straight.md.

const (
	unwatched = 10 * time.Millisecond // how long an answer is waited for before the call's context is watched
	little    = 16 << 10              // what a connection takes without waiting, if it has answered all before
)

// smallBuffer is what go-redis has for reading and writing, each, where it greets
// and does little more.
const smallBuffer = 4 << 10

// goStraight makes calls do without go-redis, as far as a client with these
// options allows: where credentials may change it speaks whenever it likes.
func (w *wire) goStraight(o *redis.Options) {
	if o.StreamingCredentialsProvider != nil {
		return
	}
	w.straight, w.idle, w.life = true, o.ConnMaxIdleTime, o.ConnMaxLifetime
	o.ReadBufferSize, o.WriteBufferSize = smallBuffer, smallBuffer
}

// ready returns a connection on which calls can be made without go-redis, or nil:
// then go-redis is to see to one.
func (w *wire) ready() *conn {
	c := w.line.Load()
	if c == nil || !w.straight {
		return nil
	}
	now := time.Now()
	if w.idle > 0 && now.Sub(c.used) >= w.idle || w.life > 0 && now.Sub(c.born) >= w.life {
		return nil // go-redis finds the same, and replaces it
	}
	c.used = now
	if c.SetDeadline(now.Add(w.wait)) != nil || !c.alive() {
		_ = c.Close() // there is nothing to lose
		return nil
	}
	return c
}

// talk makes calls on a connection that is ready. One on which something goes
// wrong is closed: go-redis finds it closed, and connects anew.
func (w *wire) talk(ctx context.Context, grace time.Duration, c *conn, calls []*call) {
	d := &w.dialog
	*d = dialog{wire: w, conn: c, ctx: ctx, grace: grace, fresh: true}
	for _, call := range calls {
		call.reply = reply{}
	}
	err := ctx.Err()
	if err == nil {
		err = w.converse(d, calls)
		if err != nil || d.over || w.replies.rest() {
			_ = c.Close()
		}
	}
	for _, call := range calls {
		if call.reply.raw == nil {
			call.err = err
			continue
		}
		if call.err = call.reply.failure(); call.err != nil && isElsewhere(call.err) {
			_ = c.Close()
		}
	}
	*d = dialog{}
}

// isElsewhere reports whether an error reply says that this is not, or not any
// more, the server to speak to: what was a master is none, or its name leads to
// another.
func isElsewhere(err error) bool {
	return redis.HasErrorPrefix(err, "READONLY") || redis.HasErrorPrefix(err, "MOVED")
}

// leave closes the connection, if there is just one.
func (w *wire) leave() {
	if c := w.line.Load(); c != nil && w.straight {
		_ = c.Close()
	}
}

// converse writes calls and reads their replies, as far as they come.
func (w *wire) converse(d *dialog, calls []*call) (err error) {
	w.replies.listen()
	if err := w.request.write(calls, d); err != nil {
		return err
	}
	for _, call := range calls {
		if call.reply, err = w.replies.read(d); err != nil {
			return err
		}
	}
	return nil
}

// A dialog is what happens on a connection during calls.
type dialog struct {
	wire  *wire
	conn  *conn
	ctx   context.Context // of the calls
	grace time.Duration
	fresh bool // nothing has happened yet: the deadlines are set
	over  bool // the other side has closed the connection, behind what it said
}

// Write implements [io.Writer].
func (d *dialog) Write(p []byte) (int, error) {
	if len(p) > little || !d.fresh {
		d.wire.watch(d.ctx, d.grace)
		if err := d.conn.SetWriteDeadline(time.Now().Add(d.wire.wait)); err != nil {
			return 0, err
		}
	}
	d.fresh = false
	return d.conn.Write(p)
}

// Read implements [io.Reader]. The time that an answer may take begins anew with
// each piece of it: a slow line is not a server that hangs. Most answers come so
// soon that nobody needs to watch the context; only where the system itself keeps
// the time is it certain that nothing is lost by looking once in between.
func (d *dialog) Read(p []byte) (int, error) {
	w, c := d.wire, d.conn
	if !c.plain {
		w.watch(d.ctx, d.grace)
	}
	for {
		watched := w.unwatch != nil || d.ctx.Done() == nil
		wait := unwatched
		if watched {
			wait = w.wait
		}
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		d.over = d.over || n > 0 && err != nil
		if n > 0 || watched || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		w.watch(d.ctx, d.grace)
	}
}
