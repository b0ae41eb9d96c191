package engine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/letter"
	"github.com/seed41896749/eventbus/observer"
)

// A burial is a Hold that waits for its dead letter to be stored.
type burial struct {
	hold   *Hold
	reason string
	err    error
}

// errElsewhere is the Delivery.Err of an event that was sent again from the dead letters of
// another group. This group acknowledges it without a run.
var errElsewhere = errors.New("eventbus: the event was sent again for another group")

// refuse settles h without a run, because its Delivery.Err is set. The kind of this error
// decides between an acknowledgement and a dead letter.
func (t *settler) refuse(h *Hold) {
	err := h.delivery.Err
	switch {
	case errors.Is(err, errElsewhere):
		t.ackUnhandled(h)
	case errors.Is(err, backend.ErrTooLarge):
		t.bury(h, ReasonTooLarge, err)
	case errors.Is(err, backend.ErrGone):
		t.sub.notifier.failed(observer.Decode, h.about(), 1, err)
		t.sub.discarded(h, ReasonGone, err)
		t.ackUnhandled(h)
	default:
		t.sub.notifier.failed(observer.Decode, h.about(), 1, err)
		t.bury(h, ReasonUnreadable, err)
	}
}

// ackUnhandled acknowledges h in every Mode. The handler of h does not run, or not again.
func (t *settler) ackUnhandled(h *Hold) {
	h.acknowledging()
	t.acks.Add(h)
}

// acknowledging notes that h is being acknowledged, and lets the next event of its key run.
func (h *Hold) acknowledging() {
	d := &h.read.sub.sched
	d.mu.Lock()
	defer d.unlock()
	h.decided()
	d.leave(h)
}

// bury stores a copy of h in the dead-letter topic, and then acknowledges h. Without a
// dead-letter topic it only acknowledges h.
func (t *settler) bury(h *Hold, reason string, err error) {
	b := burial{hold: h, reason: reason, err: err}
	if t.sub.DeadLetter != "" {
		t.burials.Add(b)
		return
	}
	t.sub.discarded(h, reason, err)
	if t.sub.Buried != nil {
		t.sub.tellBuried(t.deadLetter(b))
	}
	t.buried(h, reason)
}

// tellBuried calls Config.Buried with a dead letter, on the notifier's goroutine.
func (s *Subscription) tellBuried(dead *backend.Message) {
	if s.Buried != nil {
		s.notifier.call("OnDeadLetter", s.about(), func() { s.Buried(dead) })
	}
}

// flushBurials stores the dead letters of a batch and then acknowledges the events. After a
// crash between the two steps, an event may get a second dead letter. An event whose dead
// letter was not stored is delayed, and runs again.
func (t *settler) flushBurials(batch []burial) {
	msgs := make([]*backend.Message, len(batch))
	for i, b := range batch {
		msgs[i] = t.deadLetter(b)
	}
	err := t.sub.engine.publisher.Publish(t.sub.live, msgs)
	for i, b := range batch {
		if e := backend.ErrorAt(err, i); e != nil {
			t.sub.notifier.failed(observer.DeadLettering, b.hold.about(), 1, e)
			t.retry(b.hold, verdict{outcome: observer.Snooze, after: t.sub.Policy.plan(b.hold, e).After}, e)
			continue
		}
		t.sub.counts.deadLettered.Add(1)
		tell(t.sub.notifier.later.DeadLettered, observer.DeadLettered{
			About: b.hold.about(), DeadLetter: t.sub.DeadLetter, Reason: b.reason, Err: b.err,
		})
		t.sub.tellBuried(msgs[i])
		t.buried(b.hold, b.reason)
	}
}

// buried acknowledges h after its dead letter was stored, or discarded. With FailAll, later
// events with the key of h then become dead letters too.
func (t *settler) buried(h *Hold, reason string) {
	if t.sub.OnFailure == FailAll && reason != ReasonKeyFailed { // ReleaseKey may have been called since
		h.failKey()
	}
	t.ackUnhandled(h)
}

// deadLetter makes the dead letter of b: the event's payload and headers, and headers with
// the reason and the origin.
func (t *settler) deadLetter(b burial) *backend.Message {
	d := &b.hold.delivery
	m := &backend.Message{
		Topic: t.sub.DeadLetter, ID: t.letterID(d), Key: d.Key,
		Headers: letter.Carried(&d.Message), Payload: d.Payload, Once: t.sub.engine.limits.OnceWindow > 0,
	}
	letter.Shelve(m)
	letter.Set(m, letter.Reason, b.reason)
	letter.Set(m, letter.Error, textOf(b.err))
	letter.Set(m, letter.ErrorClass, t.sub.Policy.classOf(b.err))
	if p, ok := errors.AsType[*observer.PanicError](b.err); ok {
		letter.Set(m, letter.Stack, string(p.Stack))
	}
	letter.Set(m, letter.Attempts, strconv.Itoa(b.hold.attempt))
	letter.Set(m, letter.Topic, t.sub.Topic)
	letter.Set(m, letter.Group, t.sub.Group)
	letter.Set(m, letter.ID, d.ID)
	letter.Set(m, letter.Position, d.Position)
	letter.Set(m, letter.Redriven, letter.RedriveCount(&d.Message))
	last := time.Now() // minus the age of the run, because the wall clock may have been changed
	if b.hold.began != 0 {
		last = last.Add(-time.Duration(t.sub.moment(last) - b.hold.began))
	}
	letter.Set(m, letter.LastAttempt, last.UTC().Format(time.RFC3339Nano))
	letter.Shorten(m, t.sub.engine.limits.Payload)
	return m
}

// letterID returns the ID of the dead letter of d. It has the position, because several
// events may have the same ID; and a hash, because a topic that was deleted and created
// again may have another event at the position.
func (t *settler) letterID(d *backend.Delivery) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, d.ID) // it does not fail
	_, _ = h.Write(d.Payload)
	return fmt.Sprintf("%s/%s/%s/%016x", t.sub.Group, t.sub.Topic, d.Position, h.Sum64())
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

// classOf returns p.Class(err). If p.Class is nil or panics, it returns ErrorClass(err).
func (p Policy) classOf(err error) (name string) {
	if p.Class == nil || guarded(func() error { name = p.Class(err); return nil }) != nil {
		return ErrorClass(err)
	}
	return name
}

// ErrorClass returns the class of an error for a dead letter: "panic", "timeout", or the Go
// type of the innermost error. Of joined errors it follows the first.
func ErrorClass(err error) string {
	for {
		switch err.(type) { //nolint:errorlint // this walks the chain itself
		case *observer.PanicError:
			return "panic"
		case *observer.TimeoutError:
			return "timeout"
		}
		next := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			next = joined.Unwrap()[0]
		}
		if next == nil {
			return fmt.Sprintf("%T", err)
		}
		err = next
	}
}
