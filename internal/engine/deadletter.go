package engine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/observer"
)

// errElsewhere is the Delivery.Err of an event that was sent again from the dead letters of
// another group. This group acknowledges it without a run.
var errElsewhere = errors.New("eventbus: the event was sent again for another group")

// refuse settles h, which is unfit, without a run. Its Delivery.Err decides between an
// acknowledgement and a dead letter.
func (s *Subscription) refuse(h *Hold) {
	t, err := feedOf(h).settler, h.Delivery.Err
	switch {
	case err == nil:
		t.burials.bury(h, ReasonNoVerdict, errTooOften(h))
	case errors.Is(err, errElsewhere):
		t.ackUnhandled(h)
	case errors.Is(err, backend.ErrTooLarge):
		t.burials.bury(h, ReasonTooLarge, unrun(ReasonTooLarge, err))
	case errors.Is(err, backend.ErrGone):
		s.notifier.failed(observer.Decode, s.aboutHold(h, nil), 1, err)
		s.discarded(s.aboutLive(h, nil), ReasonGone, err)
		t.ackUnhandled(h)
	default:
		s.notifier.failed(observer.Decode, s.aboutHold(h, nil), 1, err)
		t.burials.bury(h, ReasonUnreadable, unrun(ReasonUnreadable, err))
	}
}

// letterOf makes the dead letter of b.
func (t *burials) letterOf(b *burial) *backend.Message {
	last := time.Now() // minus the age of the run, because the wall clock may have been changed
	if b.began != 0 {
		last = last.Add(-time.Duration(t.sub.moment(last) - b.began))
	}
	f := letter.Failure{
		Reason: b.reason, Error: textOf(b.err), Class: b.class, Attempts: b.hold.Attempt, Topic: t.topic, Group: t.sub.Group, Last: last,
	}
	if p, ok := errors.AsType[*observer.PanicError](b.err); ok {
		f.Stack = string(p.Stack)
	}
	m := letter.Of(&b.hold.Delivery.Message, &f)
	m.Topic, m.ID, m.Once = t.deadLetter, t.letterID(b.hold), t.sub.engine.limits.OnceWindow > 0
	letter.Shorten(m, t.sub.engine.limits.Payload)
	return m
}

// letterID returns the ID of the dead letter of h. Repeated calls that store the letter send
// the same ID, so that the backend may store only one. The ID differs for each receipt and
// attempt. Otherwise the backend would take a second letter of the event for a duplicate of
// the first one, which may be gone.
func (t *burials) letterID(h *Hold) string {
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, t.nonce, h.Arrived(), h.Attempt) // it does not fail
	return fmt.Sprintf("%s/%s/%s/%016x", t.sub.Group, t.topic, h.Delivery.Position, hash.Sum64())
}

// textOf returns err.Error(). If Error panics, textOf returns a text about the panic,
// because err may be a type of the program.
func textOf(err error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T, whose Error panics: %v", err, v)
		}
	}()
	return err.Error()
}

// classOf returns p.Class(err). If p.Class is nil, panics or ends its goroutine, classOf returns
// ErrorClass(err). So p.Class has a goroutine of its own.
func (p Policy) classOf(err error) (name string) {
	if p.Class == nil {
		return ErrorClass(err)
	}
	ok := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		ok = guarded(func() error { name = p.Class(err); return nil }) == nil
	}()
	<-done
	if !ok {
		return ErrorClass(err)
	}
	return name
}
