package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
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

	call    uint64
	before  error  // the last of the connection when the call began
	awaited int    // answers
	heard   bool   // one
	waits   []bool // by request: for its answer

	// What one message is made of, and the next again: it is written at once.
	message natsgo.Msg
	values  []string

	text slab.Slab // of the call
}

// lineRoom is how many answers may be under way. More than that a call does not
// ask at once.
const lineRoom = 4096

func newLine(conn *natsgo.Conn, t *tap) (*line, error) {
	l := &line{conn: conn, prefix: conn.NewInbox() + "."}
	if err := l.inbox.open(conn, t, l.prefix, 2*lineRoom); err != nil {
		l.inbox.close()
		return nil, err
	}
	l.broken = conn.StatusChanged(natsgo.DISCONNECTED, natsgo.RECONNECTING, natsgo.CLOSED)
	l.message.Header = natsgo.Header{}
	return l, nil
}

// begin starts a call of at most n requests.
func (l *line) begin(n int) {
	if l.deaf { // a server that has taken the right to listen away does not give it back by itself
		l.inbox.unsubscribe()
		l.deaf = l.inbox.subscribe(l.conn) != nil
	}
	l.call++
	l.awaited, l.heard = 0, false
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
			l.before = l.conn.LastError()
			return
		}
	}
}

// reply is the subject for the answer to request i.
func (l *line) reply(i int) string {
	var room [96]byte
	b := append(room[:0], l.prefix...)
	b = strconv.AppendUint(b, l.call, 36)
	b = append(b, '-')
	return l.text.Text(strconv.AppendInt(b, int64(i), 36))
}

// expectReplies announces so many replies, and as many positions.
func (l *line) expectReplies(n int) { l.text.Expect(0, 0, n*(len(l.prefix)+replyLen+positionLen)) }

const replyLen = 12 // of numbers as they usually are

// asked says that request i is on its way.
func (l *line) asked(i int) {
	l.waits[i] = true
	l.awaited++
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
// beside the answers. subject is that of a request. Where nothing comes for a
// second it calls why, if that is set, which may know of some that no answer will
// come. It ends early when ctx is done or the connection is lost; waits then says
// of which requests nothing is known.
func (l *line) gather(ctx context.Context, subject func(i int) string, got func(i int, m *arrival, err error), why func(i int) error) error {
	look := time.NewTimer(quiet)
	defer look.Stop()
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
		case <-look.C:
			look.Reset(quiet)
			violation := violationSince(l.conn, l.before)
			looks++
			for i, waits := range l.waits {
				if !waits {
					continue
				}
				var err error
				switch {
				case concerns(violation, subject(i)), concerns(violation, l.prefix+"*"):
					err = fmt.Errorf("%w: %w", backend.ErrDenied, violation)
				case looks == silence && why != nil:
					err = why(i)
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
		}
	}
	return nil
}

func (l *line) answered(i int) {
	l.heard = true
	l.waits[i] = false
	l.awaited--
}

// violationSince returns what the server has said since of something that it
// does not permit.
func violationSince(conn *natsgo.Conn, before error) error {
	if err := conn.LastError(); err != before && errors.Is(err, natsgo.ErrPermissionViolation) { //nolint:errorlint // the same one, not one like it
		return err
	}
	return nil
}

// concerns reports whether a violation is about a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// close leaves the inbox.
func (l *line) close() error {
	l.inbox.close()
	l.conn.RemoveStatusListener(l.broken)
	return nil
}

func newLines(conn *natsgo.Conn, t *tap) *pool.Pool[*line] {
	return pool.New(lineCount, func() (*line, error) { return newLine(conn, t) }, (*line).close)
}
