package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/alarm"
)

// An outlet is the writing side of a tapped connection. Two write to it: the client
// library, and calls of ours that go straight, past its lock, its buffer and its
// goroutine. Each writes whole operations of the protocol while it has the turn; so
// the outlet follows where those of the library end, and learns from them of which
// inbox the server knows. Where it meets what it does not know, such as TLS, nobody
// goes straight.
type outlet struct {
	net.Conn
	tap   *tap
	turn  chan struct{} // full while somebody writes
	until atomic.Int64  // deadline of the library's writes, by the wall clock; 0: none

	// A call that goes straight and is held up.
	held *alarm.Alarm
	cut  bool          // written with the turn, or by held while somebody has it
	late chan struct{} // with the turn: closed when what the last has left is written; nil: it has left nothing

	patience time.Duration // with a connection that takes nothing

	// What the server has said.
	payload atomic.Int64          // most bytes of a message with its headers; 0: not known
	refusal atomic.Pointer[error] // the last, of something it does not permit

	// Of what the library writes, with the turn.
	rest   int         // bytes of a payload, still to come
	line   []byte      // the beginning of a line
	opaque atomic.Bool // it has written what is not known

	closing sync.Once
	gone    chan struct{} // closed with it
}

const (
	lineMost = 64 << 10              // longer lines are not known
	heldUp   = 50 * time.Millisecond // after so long a call leaves the rest to another goroutine
	portion  = 64 << 10              // of the rest, or one operation: then the client library has its turn
	hopeless = 2 * time.Second       // after so long a connection that does not take that is given up, if nothing else is said
)

func newOutlet(conn net.Conn, t *tap) *outlet {
	o := &outlet{Conn: conn, tap: t, patience: hopeless, turn: make(chan struct{}, 1), gone: make(chan struct{})}
	o.held = alarm.Func(func() {
		o.cut = true
		_ = o.Conn.SetWriteDeadline(time.Unix(1, 0)) // past
	})
	return o
}

// Write implements [net.Conn]. The client library calls it.
func (o *outlet) Write(p []byte) (int, error) {
	var until time.Time
	if nanos := o.until.Load(); nanos != 0 {
		until = time.Unix(0, nanos)
	}
	if !o.await(until) {
		return 0, os.ErrDeadlineExceeded
	}
	defer o.leave()
	o.follow(p)
	if until.IsZero() {
		return o.Conn.Write(p)
	}
	_ = o.Conn.SetWriteDeadline(until) // what is wrong with the connection Write says
	n, err := o.Conn.Write(p)
	_ = o.Conn.SetWriteDeadline(time.Time{})
	return n, err
}

// await waits for the turn, and reports whether it came in time.
func (o *outlet) await(until time.Time) bool {
	select {
	case o.turn <- struct{}{}:
		return true
	default:
	}
	var late <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	select {
	case o.turn <- struct{}{}:
		return true
	case <-late:
		return false
	}
}

func (o *outlet) leave() { <-o.turn }

// SetWriteDeadline implements [net.Conn], for the client library: calls that go
// straight have times of their own.
func (o *outlet) SetWriteDeadline(t time.Time) error {
	nanos := int64(0)
	if !t.IsZero() {
		nanos = t.UnixNano()
	}
	o.until.Store(nanos)
	return nil
}

// SetDeadline implements [net.Conn]. The client library calls it where it begins to
// make the connection, and with no deadline where that has ended.
func (o *outlet) SetDeadline(t time.Time) error {
	if t.IsZero() {
		o.tap.connecting.Store(false)
	}
	_ = o.SetWriteDeadline(t)
	return o.Conn.SetReadDeadline(t)
}

// Close implements [net.Conn].
func (o *outlet) Close() error {
	o.closing.Do(func() { close(o.gone) })
	return o.Conn.Close()
}

// isOpen reports whether a call may go straight.
func (o *outlet) isOpen() bool {
	select {
	case <-o.gone:
		return false
	default:
		return o.payload.Load() > 0 && !o.opaque.Load()
	}
}

// say writes whole operations past the client library; ends says where they end. An
// error is certain to mean that nothing of them has left; whether all of them have,
// the answers tell. Where the connection takes no more, say does not wait for it,
// and keeps nothing of what it was given.
func (o *outlet) say(ctx context.Context, what *net.Buffers, ends []int) error {
	if err := o.awaitStraight(ctx); err != nil {
		return err
	}
	if !o.isBetween() {
		o.leave()
		return errNotConnected
	}
	o.held.Set(heldUp)
	n, err := what.WriteTo(o.Conn) // what is left in it is still to be written
	o.held.Stop()
	if o.cut {
		o.cut = false
		_ = o.Conn.SetWriteDeadline(time.Time{})
	}
	if err != nil && n > 0 {
		o.late = make(chan struct{})
		go o.finish(slices.Concat(*what...), portions(ends, int(n)))
		return nil
	}
	o.leave()
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return nil
}

// awaitStraight waits for the turn of a call that goes straight: behind what others
// have left.
func (o *outlet) awaitStraight(ctx context.Context) error {
	for {
		select {
		case o.turn <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
		case <-o.gone:
			return errNotConnected
		}
		late := o.late
		if late == nil {
			return nil
		}
		o.leave()
		select {
		case <-late:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
		case <-o.gone:
			return errNotConnected
		}
	}
}

// isBetween reports, to who has the turn, whether the client library has ended what
// it was saying, and a call may go straight.
func (o *outlet) isBetween() bool { return o.isOpen() && o.rest == 0 && len(o.line) == 0 }

// portions is where to divide what is left when so many bytes are written.
func portions(ends []int, written int) (at []int) {
	from := 0
	for i, end := range ends {
		if end -= written; end-from >= portion && i < len(ends)-1 {
			at, from = append(at, end), end
		}
	}
	return at
}

// finish writes the rest of what a call says, and gives up the connection if it
// cannot: in the middle of an operation it is of no use. At the portions the client
// library has its turn; its pings are not to wait for a slow connection to take all.
func (o *outlet) finish(rest []byte, portions []int) {
	defer o.leave()
	for from := 0; from < len(rest); {
		end := len(rest)
		if len(portions) > 0 {
			end, portions = portions[0], portions[1:]
		}
		_ = o.Conn.SetWriteDeadline(time.Now().Add(o.patience))
		_, err := o.Conn.Write(rest[from:end])
		_ = o.Conn.SetWriteDeadline(time.Time{})
		if from = end; err == nil && from < len(rest) {
			o.leave()
			o.turn <- struct{}{}
		}
		if err != nil || !o.isBetween() {
			_ = o.Close()
			break
		}
	}
	close(o.late)
	o.late = nil
}

// hears looks at a line that the server says, which is not of a message.
func (o *outlet) hears(line []byte) {
	if text, ok := bytes.CutPrefix(line, []byte("INFO ")); ok {
		var info struct {
			MaxPayload int64 `json:"max_payload"`
		}
		if json.Unmarshal(text, &info) == nil {
			o.payload.Store(info.MaxPayload)
		}
	}
	if text, ok := bytes.CutPrefix(line, []byte("-ERR ")); ok && bytes.HasPrefix(bytes.ToLower(text), []byte("'"+natsgo.PERMISSIONS_ERR)) {
		err := fmt.Errorf("%w: %s", natsgo.ErrPermissionViolation, bytes.Trim(text, "'\r\n "))
		o.refusal.Store(&err)
	}
}

// refused is the last that the server has said of something it does not permit.
func (o *outlet) refused() error {
	if err := o.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// follow looks at what the client library is about to write.
func (o *outlet) follow(p []byte) {
	for len(p) > 0 && !o.opaque.Load() {
		if o.rest > 0 {
			n := min(o.rest, len(p))
			o.rest, p = o.rest-n, p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			o.line = append(o.line, p...)
			if len(o.line) > lineMost {
				o.opaque.Store(true)
			}
			return
		}
		line := p[:end]
		if len(o.line) > 0 {
			line = append(o.line, line...)
			o.line = o.line[:0]
		}
		if p = p[end:]; !o.operation(line) {
			o.opaque.Store(true)
		}
	}
}

// operation looks at the first line of one, and reports whether it is known.
func (o *outlet) operation(line []byte) bool {
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	words := bytes.Fields(line)
	if !ok || len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	switch string(words[0]) {
	case "PUB", "HPUB":
		n, ok := number(last)
		o.rest = n + len("\r\n")
		return ok
	case "SUB":
		sid, ok := number(last)
		if inbox, is := bytes.CutSuffix(words[1], []byte("*")); ok && is && len(words) == 3 {
			o.tap.heard(string(inbox), sid, o)
		}
		return ok
	case "UNSUB", "PING", "PONG", "CONNECT":
		return true
	}
	return false
}
