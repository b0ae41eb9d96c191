package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
)

// An arrival is the state of one pull while its messages arrive.
type arrival struct {
	source *source
	most   int // messages of the pull, as far as they have not proved to be fewer
	left   int // bytes of the pull that its messages have not used
	reply  string
	asked  time.Time
	began  int64 // asked, by the clock of leases

	msgs    []*natsgo.Msg
	exceeds bool        // the next message was larger than left
	end     *natsgo.Msg // status message that ended the pull; nil if the batch was filled
}

func (a *arrival) over() bool { return len(a.msgs) >= a.most || a.end != nil }

// take handles a message. A status message ends the pull that it names. The server sends no
// status message if the messages use exactly the bytes of the pull.
func (a *arrival) take(m *natsgo.Msg) {
	switch {
	case m.Reply != "":
		a.msgs = append(a.msgs, m)
		if a.left -= m.Size(); a.left == 0 {
			a.most = len(a.msgs)
		}
	case m.Subject != a.reply:
	case a.full(m):
	default:
		a.end = m
	}
}

// full handles the status messages that end a pull with a limit in bytes. It returns false
// for others. In a cluster such a message may arrive before the last messages of the pull,
// so it tells how many there are.
func (a *arrival) full(m *natsgo.Msg) bool {
	text := m.Header.Get("Description")
	fits := text == "Batch Completed"
	missing, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if !fits && text != "Message Size Exceeds MaxBytes" || err != nil {
		return false
	}
	a.most, a.exceeds = max(a.most-missing, len(a.msgs)), !fits
	return true
}

// errSilence means that a pull did not end in time.
var errSilence = fmt.Errorf("%w: a pull has not ended in time", backend.ErrUnavailable)

// await gathers messages until the pull ends. If none comes for the time pause, it asks the
// server why, and waits once more.
func (a *arrival) await(ctx context.Context, pause time.Duration) error {
	s := a.source
	for doubted := false; !a.over(); {
		m, err := s.pulls.wait(ctx, pause)
		failed, notSent := errors.AsType[backend.BatchError](err)
		switch {
		case m != nil:
			a.take(m)
			doubted = false // the line is slow
		case notSent:
			return classOf(ctx, failed[0], false)
		case errors.Is(err, natsgo.ErrPermissionViolation):
			if concerns(err, s.next) || concerns(err, s.pulls.inbox.prefix+"*") {
				return fmt.Errorf("%w: %w", backend.ErrDenied, err)
			}
		case err != nil && errors.Is(err, ctx.Err()):
			return a.withdraw(ctx)
		case err != nil:
			return classOf(ctx, err, false)
		case doubted:
			return errSilence
		default:
			doubted, pause = true, patience
			if err := s.fate(ctx, a.asked, "a pull has not ended in time"); !errors.Is(err, backend.ErrUnavailable) {
				return err
			}
		}
	}
	return nil
}

// withdraw ends a pull whose caller has left. Until the pull is as old as lull, it waits for
// the end of the pull, and then drains the inbox, so that the server ends the pull. A message that the server sent
// during the drain is redelivered, as another attempt.
func (a *arrival) withdraw(ctx context.Context) error {
	l := &a.source.pulls.line
	if l.sender.leave(l.sent) {
		return ctx.Err()
	}
	var drained <-chan struct{}
	pause := lull
	if len(a.msgs) == 0 { // without messages so far, an older pull has none under way
		pause -= time.Since(a.asked)
	}
	l.timer.Reset(max(pause, 0))
	for !a.over() {
		select {
		case m := <-l.inbox.msgs:
			a.take(m)
			continue
		case <-l.timer.C:
			if drained == nil {
				drained = l.drain()
				l.timer.Reset(grace)
				continue
			}
		case <-drained:
		case <-l.sent.lost:
		case <-l.ended:
		}
		return ctx.Err()
	}
	if drained != nil {
		return ctx.Err() // with an error, because a drained inbox cannot be used again
	}
	return nil
}
