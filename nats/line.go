package nats

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/alarm"
	"github.com/seed41896749/eventbus/internal/pool"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A line is an inbox that one call uses at a time, to send many requests and
// gather their answers. Answers to an earlier call, which had given up, are told
// by its number.
type line struct {
	conn   *natsgo.Conn
	prefix string
	inbox  inbox
	broken chan natsgo.Status // gets something when the connection is lost
	deaf   bool               // maybe: a call has heard nothing at all

	call     uint64
	awaited  int    // answers
	heard    bool   // one
	waits    []bool // by request: for its answer
	patience int    // so often it looks while nothing comes; 0: as long as its context lasts

	look    *alarm.Alarm // at what there is while nothing comes
	outbox  outbox
	subject []byte    // of the last reply
	text    slab.Slab // of the call
}

// lineRoom is how many answers may be under way. More than that a call does not
// ask at once.
const lineRoom = 4096

func newLine(conn *natsgo.Conn, t *tap) (*line, error) {
	l := &line{conn: conn, prefix: conn.NewInbox() + ".", look: alarm.New(), outbox: newOutbox(conn)}
	if err := l.inbox.open(conn, t, l.prefix, 2*lineRoom); err != nil {
		l.inbox.close()
		return nil, err
	}
	l.broken = conn.StatusChanged(natsgo.DISCONNECTED, natsgo.RECONNECTING, natsgo.CLOSED)
	return l, nil
}

// begin starts a call of at most n requests. An error says that there is no
// connection.
func (l *line) begin(n int) error {
	if l.deaf && !l.outbox.straight && !l.inbox.tap.isConnecting() { // a server that has taken the right to listen away does not give it back by itself
		l.inbox.unsubscribe()
		l.deaf = l.inbox.subscribe(l.conn) != nil
	}
	l.call++
	l.awaited, l.heard, l.patience = 0, false, 0
	l.text = slab.Slab{}
	if cap(l.waits) < n {
		l.waits = make([]bool, n)
	}
	l.waits = l.waits[:n]
	clear(l.waits)
	l.inbox.empty()
	for {
		select {
		case <-l.broken:
		default:
			return l.outbox.begin(&l.inbox)
		}
	}
}

// reply is the subject for the answer to request i, which is valid until the next.
func (l *line) reply(i int) []byte {
	b := append(l.subject[:0], l.prefix...)
	b = strconv.AppendUint(b, l.call, 36)
	b = append(b, '-')
	l.subject = strconv.AppendInt(b, int64(i), 36)
	return l.subject
}

// asked says that request i is on its way.
func (l *line) asked(i int) {
	l.waits[i] = true
	l.awaited++
}

// send sends what is in the outbox. With an error nothing has left, and nothing is
// awaited.
func (l *line) send(ctx context.Context) error {
	err := l.outbox.send(ctx)
	if err != nil {
		l.awaited = 0
		clear(l.waits)
	}
	return err
}

// index returns which request m answers, or false if it was of an earlier call.
func (l *line) index(m *arrival) (int, bool) {
	rest, ok := strings.CutPrefix(m.subject, l.prefix)
	call, index, ok2 := strings.Cut(rest, "-")
	if !ok || !ok2 {
		return 0, false
	}
	n, err := strconv.ParseUint(call, 36, 64)
	i, err2 := strconv.ParseUint(index, 36, 32)
	return int(i), err == nil && err2 == nil && n == l.call && int(i) < len(l.waits)
}

const (
	quiet   = 100 * time.Millisecond // so long a call waits before it looks whether it was forbidden
	silence = 10                     // and so many times that, before it is asked why there is no answer
)

// gather waits until every request is answered, and calls got for each: with the
// answer, which is valid during the call, or with the error if the server does not permit it, which it says
// beside the answers. subject is that of a request. Each second in which nothing
// comes it calls why, if that is set. The function that why returns is then asked for
// the error of each request for which no answer will come. It ends early when ctx is done, the connection or patience is lost; waits then says
// of which requests nothing is known.
func (l *line) gather(ctx context.Context, subject func(i int) string, got func(i int, m *arrival, err error), why func() func(i int) error) error {
	l.look.Set(quiet)
	defer l.look.Stop()
	looks := 0
	for l.awaited > 0 {
		if answers := l.inbox.arrived(); len(answers) > 0 {
			l.inbox.took(1)
			if i, ok := l.index(&answers[0]); ok && l.waits[i] {
				looks = 0
				l.answered(i)
				got(i, &answers[0], nil)
			}
			continue
		}
		select {
		case m := <-l.inbox.msgs:
			l.inbox.put(m)
		case <-l.inbox.box.some:
		case <-l.look.C():
			l.look.Set(quiet)
			violation := l.outbox.violation()
			if looks++; looks == l.patience {
				l.deaf = !l.heard
				return context.DeadlineExceeded
			}
			known := func(int) error { return nil }
			if looks%silence == 0 && why != nil {
				known = why()
			}
			for i, waits := range l.waits {
				if !waits {
					continue
				}
				var err error
				switch {
				case concerns(violation, subject(i)), concerns(violation, l.prefix+"*"):
					err = fmt.Errorf("%w: %w", backend.ErrDenied, violation)
				default:
					err = known(i)
				}
				if err != nil {
					l.answered(i)
					got(i, nil, err)
				}
			}
		case <-ctx.Done():
			l.deaf = !l.heard
			return ctx.Err()
		case <-l.broken:
			return errConnectionLost
		case <-l.outbox.lost():
			return errConnectionLost
		}
	}
	return nil
}

func (l *line) answered(i int) {
	l.heard = true
	l.waits[i] = false
	l.awaited--
}

// concerns reports whether a violation is about a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// close leaves the inbox.
func (l *line) close() error {
	l.inbox.close()
	l.inbox.tap.leave(func() { l.conn.RemoveStatusListener(l.broken) })
	return nil
}

func newLines(conn *natsgo.Conn, t *tap) *pool.Pool[*line] {
	return pool.New(lineCount, func() (*line, error) { return newLine(conn, t) }, (*line).close)
}
