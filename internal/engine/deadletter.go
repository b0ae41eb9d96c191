package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// The headers of a dead letter. The reason is one of the Reason constants.
const (
	DeadReason      = ReservedPrefix + "dead-reason"
	DeadError       = ReservedPrefix + "dead-error"
	DeadErrorClass  = ReservedPrefix + "dead-error-class"
	DeadStack       = ReservedPrefix + "dead-stack"
	DeadAttempts    = ReservedPrefix + "dead-attempts"
	DeadTopic       = ReservedPrefix + "dead-topic"
	DeadGroup       = ReservedPrefix + "dead-group"
	DeadID          = ReservedPrefix + "dead-id"
	DeadPosition    = ReservedPrefix + "dead-position"
	DeadLastAttempt = ReservedPrefix + "dead-last-attempt"
)

// ReservedPrefix begins the names of headers that only the bus sets.
const ReservedPrefix = "eventbus-"

const (
	maxErrorText = 4 << 10
	maxStack     = 8 << 10
)

// A burial is a Hold on its way to the dead-letter topic.
type burial struct {
	hold   *Hold
	reason string
	err    error
}

// setAside deals with a delivery that has no message to handle.
func (s *Subscription) setAside(h *Hold) {
	err := h.delivery.Err
	s.engine.tell.failed(observer.Decode, h.about(), 1, err)
	if errors.Is(err, backend.ErrGone) {
		s.discarded(h, ReasonGone, err)
		s.settleAside(h)
		return
	}
	s.bury(h, ReasonUnreadable, err)
}

// settleAside acknowledges an event that does not run, in every mode.
func (s *Subscription) settleAside(h *Hold) {
	s.sched.aside(h)
	s.acks.Add(h)
}

// aside notes that h is being acknowledged and holds up its key no longer.
func (d *scheduler) aside(h *Hold) {
	d.mu.Lock()
	defer d.unlock()
	d.decided(h)
	d.leave(h)
}

// bury puts h into the dead-letter topic, and then acknowledges it.
func (s *Subscription) bury(h *Hold, reason string, err error) {
	if s.DeadLetter == "" {
		s.discarded(h, reason, err)
		s.buried(h)
		return
	}
	s.burials.Add(burial{hold: h, reason: reason, err: err})
}

// flushBurials stores the dead letters first and then acknowledges the originals. A
// crash in between makes two dead letters, never none. An event whose dead letter cannot
// be stored is redelivered.
func (s *Subscription) flushBurials(batch []burial) {
	msgs := make([]*backend.Message, len(batch))
	for i, b := range batch {
		msgs[i] = s.deadLetter(b)
	}
	err := s.engine.publisher.Publish(s.live, msgs)
	for i, b := range batch {
		if e := backend.ErrorAt(err, i); e != nil {
			s.engine.tell.failed(observer.DeadLettering, b.hold.about(), 1, e)
			s.retry(b.hold, verdict{outcome: observer.Snooze, after: s.Policy.Backoff(b.hold, e)}, e)
			continue
		}
		s.counts.deadLettered.Add(1)
		tell(s.engine.tell.later.DeadLettered, observer.DeadLettered{
			About: b.hold.about(), DeadLetter: s.DeadLetter, Reason: b.reason, Err: b.err,
		})
		s.buried(b.hold)
	}
}

// buried lets the later events of h's key follow h (FailAll), and acknowledges h.
func (s *Subscription) buried(h *Hold) {
	if s.OnFailure == FailAll {
		s.sched.failKey(h)
	}
	s.settleAside(h)
}

// deadLetter makes the message that keeps b: the original's payload and headers,
// and why it is there.
func (s *Subscription) deadLetter(b burial) *backend.Message {
	d := &b.hold.delivery
	m := &backend.Message{
		// Not by d.ID: events that share one would share a dead letter.
		Topic: s.DeadLetter, ID: s.Group + "/" + s.Topic + "/" + d.Position, Key: d.Key,
		Headers: slices.Clone(d.Headers), Payload: d.Payload, Once: s.engine.limits.OnceWindow > 0,
	}
	set := func(name, value string, most int) {
		if value != "" {
			m.Headers.Set(name, headerText(value, most))
		}
	}
	set(DeadReason, b.reason, maxErrorText)
	set(DeadError, b.err.Error(), maxErrorText)
	set(DeadErrorClass, errorClass(b.err), maxErrorText)
	if p, ok := errors.AsType[*observer.PanicError](b.err); ok {
		set(DeadStack, string(p.Stack), maxStack)
	}
	set(DeadAttempts, strconv.Itoa(b.hold.attempt), maxErrorText)
	set(DeadTopic, s.Topic, maxErrorText)
	set(DeadGroup, s.Group, maxErrorText)
	set(DeadID, d.ID, maxErrorText)
	set(DeadPosition, d.Position, maxErrorText)
	if b.hold.began != 0 {
		now := time.Now() // by the wall's clock, which may have been set since the subscription began
		set(DeadLastAttempt, now.Add(-time.Duration(s.moment(now)-b.hold.began)).UTC().Format(time.RFC3339Nano), maxErrorText)
	}
	return m
}

// errorClass names the kind of the innermost error of err.
func errorClass(err error) string {
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

// headerText makes s fit for a header: one line of valid UTF-8, at most so many
// bytes, line ends shown as bars.
func headerText(s string, most int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(strings.TrimSpace(s), "\n", " | "), "�")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
