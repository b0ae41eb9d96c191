package nats

import (
	"context"
	"strconv"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// A line is an inbox that one call uses at a time, to send many requests and
// gather their answers. Answers to an earlier call, which had given up, are told
// by its number.
type line struct {
	conn    *natsgo.Conn
	prefix  string
	answers chan *natsgo.Msg
	broken  chan natsgo.Status // gets something when the connection is lost
	sub     *natsgo.Subscription
	call    uint64
}

// lineRoom is how many answers may be under way. More than that a call does not
// ask at once.
const lineRoom = 4096

func newLine(conn *natsgo.Conn) (*line, error) {
	l := &line{conn: conn, prefix: conn.NewInbox() + ".", answers: make(chan *natsgo.Msg, 2*lineRoom)}
	sub, err := conn.ChanSubscribe(l.prefix+"*", l.answers)
	if err != nil {
		return nil, err
	}
	l.sub = sub
	l.broken = conn.StatusChanged(natsgo.DISCONNECTED, natsgo.RECONNECTING, natsgo.CLOSED)
	return l, nil
}

// begin starts a call.
func (l *line) begin() {
	l.call++
	for {
		select {
		case <-l.answers:
		case <-l.broken:
		default:
			return
		}
	}
}

// reply is the subject for the answer to request i.
func (l *line) reply(i int) string {
	b := make([]byte, 0, len(l.prefix)+24)
	b = append(b, l.prefix...)
	b = strconv.AppendUint(b, l.call, 36)
	b = append(b, '-')
	return string(strconv.AppendInt(b, int64(i), 36))
}

// index returns which request m answers, or false if it was of an earlier call.
func (l *line) index(m *natsgo.Msg) (int, bool) {
	rest, ok := strings.CutPrefix(m.Subject, l.prefix)
	call, index, ok2 := strings.Cut(rest, "-")
	if !ok || !ok2 {
		return 0, false
	}
	n, err := strconv.ParseUint(call, 36, 64)
	i, err2 := strconv.ParseInt(index, 36, 64)
	return int(i), err == nil && err2 == nil && n == l.call
}

// gather waits for so many answers to n requests and calls got for each, once.
// It ends early when ctx is done or the connection is lost.
func (l *line) gather(ctx context.Context, n, awaited int, got func(i int, m *natsgo.Msg)) error {
	seen := make([]bool, n)
	for awaited > 0 {
		select {
		case m := <-l.answers:
			if i, ok := l.index(m); ok && i < n && !seen[i] {
				seen[i] = true
				awaited--
				got(i, m)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-l.broken:
			return errConnectionLost
		}
	}
	return nil
}

func (l *line) close() {
	_ = l.sub.Unsubscribe() // the connection may be closed
	l.conn.RemoveStatusListener(l.broken)
}

// lines lends lines.
type lines struct {
	conn   *natsgo.Conn
	places chan struct{}

	mu     sync.Mutex
	idle   []*line
	closed bool
}

func newLines(conn *natsgo.Conn, size int) *lines {
	return &lines{conn: conn, places: make(chan struct{}, size)}
}

func (p *lines) get(ctx context.Context) (*line, error) {
	select {
	case p.places <- struct{}{}:
	default:
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.places
		return nil, backend.ErrClosed
	}
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return l, nil
	}
	l, err := newLine(p.conn)
	if err != nil {
		<-p.places
		return nil, err
	}
	return l, nil
}

func (p *lines) put(l *line) {
	p.mu.Lock()
	if p.closed {
		l.close()
	} else {
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	<-p.places
}

func (p *lines) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.idle {
		l.close()
	}
	p.idle = nil
}
