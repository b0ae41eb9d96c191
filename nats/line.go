package nats

import (
	"context"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// A line sends the messages of one call at a time through the sender, and receives their
// answers in an inbox. After an error its next call uses a new inbox, because late answers
// may arrive in the old one.
type line struct {
	sender *sender
	room   int // most messages in the inbox; the library drops further ones
	timer  *time.Timer
	ended  <-chan struct{} // closed when the owner of the line is closed; nil if it waits for no such end

	inbox *inbox   // nil before the first call, and after hangUp
	sent  *sending // the messages of the present call
}

// An inbox is a subscription to all subjects that begin with its prefix.
type inbox struct {
	prefix string
	msgs   chan *natsgo.Msg

	sub *natsgo.Subscription // only the sender's goroutine uses it; nil before the first sending
}

func newLine(s *sender, room int, ended <-chan struct{}) line {
	return line{sender: s, room: room, ended: ended, timer: time.NewTimer(time.Hour)}
}

// open makes an inbox, unless there is one.
func (l *line) open() {
	if l.inbox == nil {
		l.inbox = &inbox{prefix: l.sender.conn.NewInbox() + ".", msgs: make(chan *natsgo.Msg, l.room)}
	}
}

// wait returns the next message for the inbox, or nil if none comes for the time pause. The
// error is a [backend.BatchError] if some messages were not sent, a permission violation,
// or the reason for which no message comes.
func (l *line) wait(ctx context.Context, pause time.Duration) (*natsgo.Msg, error) {
	select {
	case m := <-l.inbox.msgs: // tried first without a timer, because messages often come together
		return m, nil
	default:
	}
	l.timer.Reset(pause)
	select {
	case m := <-l.inbox.msgs:
		return m, nil
	case failed := <-l.sent.failed:
		return nil, failed
	case violation := <-l.sent.refused:
		return nil, violation
	case <-l.timer.C:
		l.sender.doubt(l.sent)
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.sent.lost:
		return nil, errConnectionLost
	case <-l.ended:
		return nil, backend.ErrClosed
	}
}

// hangUp ends the inbox.
func (l *line) hangUp() {
	if in := l.inbox; in != nil {
		l.inbox = nil
		l.sender.later(func() {
			if in.sub != nil {
				_ = in.sub.Unsubscribe() // the connection may be closed
			}
		})
	}
}

// drain ends the subscription without losing messages. The result gets an element when all
// messages sent to the inbox have arrived. In a cluster drain does nothing, because another
// server may still send.
func (l *line) drain() <-chan struct{} {
	in, conn, drained := l.inbox, l.sender.conn, make(chan struct{}, 1)
	l.sender.later(func() {
		if in.sub != nil && conn.ConnectedClusterName() == "" {
			in.sub.SetClosedHandler(func(string) {
				select { // the library may call it twice
				case drained <- struct{}{}:
				default:
				}
			})
			_ = in.sub.Drain() // if it fails, the connection is lost
		}
	})
	return drained
}

// subscribe begins the subscription, unless it has begun.
func (in *inbox) subscribe(conn *natsgo.Conn) (err error) {
	if in != nil && in.sub == nil {
		in.sub, err = conn.ChanSubscribe(in.prefix+"*", in.msgs)
	}
	return err
}

// concerns reports whether a violation names a subject.
func concerns(violation error, subject string) bool {
	return violation != nil && strings.Contains(violation.Error(), `"`+subject+`"`)
}

// isUnserved reports whether an answer says that no server listens on the subject of the
// request.
func isUnserved(m *natsgo.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }
