package eventbus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/later"
)

// A Scheduler publishes events at a later time.
type Scheduler interface {
	PublishAt(ctx context.Context, topic string, at time.Time, events ...*Event) error
	PublishIn(ctx context.Context, topic string, in time.Duration, events ...*Event) error
}

var _ Scheduler = (*Bus)(nil)

// PublishAt stores events that are published in topic at a later time, any time ahead. It
// returns when they are stored as durably as Publish stores events, in a topic named
// topic+".later". If at is zero or has passed, PublishAt publishes the events now.
//
// No event is published before the time at, by the broker's clock; backends without a clock
// use the clocks of the processes. A process with a subscription to the topic publishes the
// event, whichever is first, and "eventbus schedule run" does so without one. Usually the
// event is a few milliseconds late. While nothing is scheduled, other processes look every
// five seconds, so the first event is up to five seconds late if it is due sooner. If no such process runs, or the topic is full, events wait; later they are
// published in the order of their times, and so events of one key have this order. While they
// wait for a failure, Observer.Failed tells of it, with the scope observer.Schedule.
//
// An event with the ID of a scheduled event replaces it. TTL and Retry count from the time at
// which the event is published. A crash while events are published stores none twice, if the
// backend remembers IDs and another process goes on within Limits.OnceWindow.
//
// The backend needs the verbs Reader and Remover. Otherwise the error matches
// errors.ErrUnsupported. The name of the topic has at most 188 bytes.
func (b *Bus) PublishAt(ctx context.Context, topic string, at time.Time, events ...*Event) error {
	if at.IsZero() || len(events) == 0 {
		return b.Publish(ctx, topic, events...)
	}
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	if at.Year() > 9999 {
		return &FieldError{Field: "at", Reason: "is after the year 9999"}
	}
	if !at.After(time.Now()) {
		now, err := b.later.Now(ctx, topic)
		if err != nil {
			return fmt.Errorf("eventbus: publish in %s at a time: %w", topic, err)
		}
		if !at.After(now) {
			return b.Publish(ctx, topic, events...)
		}
	}
	return publishLater(ctx, b, topic, when{due: at}, events)
}

// PublishIn is like [Bus.PublishAt], with the time that is the duration in after the present
// time of the broker.
func (b *Bus) PublishIn(ctx context.Context, topic string, in time.Duration, events ...*Event) error {
	if in <= 0 || len(events) == 0 {
		return b.Publish(ctx, topic, events...)
	}
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	now, err := b.later.Now(ctx, topic)
	if err != nil {
		return fmt.Errorf("eventbus: publish in %s in %v: %w", topic, in, err)
	}
	return publishLater(ctx, b, topic, when{due: now.Add(in)}, events)
}

// A ScheduledEvent is an event that will be published.
type ScheduledEvent struct {
	Event
	At        time.Time // when it is due
	Recurring string    // the ID of the recurring entry that made it; empty: none
}

// Scheduled returns the events of topic that are scheduled now, in the order in which they are
// due. It reads all of them. An error ends the sequence.
func (b *Bus) Scheduled(ctx context.Context, topic string) iter.Seq2[ScheduledEvent, error] {
	return func(yield func(ScheduledEvent, error) bool) {
		fail := func(err error) {
			yield(ScheduledEvent{}, fmt.Errorf("eventbus: scheduled events of %s: %w", topic, err))
		}
		if err := checkSchedule(b, topic); err != nil {
			yield(ScheduledEvent{}, err)
			return
		}
		v, err := b.later.Look(ctx, topic)
		if err != nil {
			fail(err)
			return
		}
		err = v.Pendings(ctx, func(e *later.Event, m *backend.Message) bool {
			return yield(ScheduledEvent{Event: EventOf(m), At: e.Due, Recurring: e.Entry}, nil)
		})
		if err != nil {
			fail(err)
		}
	}
}

// CancelScheduled cancels scheduled events of topic by their IDs. It returns for each ID
// whether the event will certainly never be published. It returns false for an event that is
// published or about to be, and for an ID that no scheduled event has. After an error the
// outcome is unknown.
//
// The first call for a topic reads all of its scheduled events, and the following calls read
// the new ones. A call after a minute without one reads all again.
func (b *Bus) CancelScheduled(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	if err := checkSchedule(b, topic); err != nil {
		return make([]bool, len(ids)), err
	}
	cancelled, err := b.later.Cancel(ctx, topic, ids)
	if err != nil {
		return cancelled, fmt.Errorf("eventbus: cancel events of %s: %w", topic, err)
	}
	return cancelled, nil
}

// RunSchedule publishes the scheduled events of topic when they are due, until ctx ends or the
// bus is shut down. A program without a subscription to the topic calls it; each subscription
// does the same.
func (b *Bus) RunSchedule(ctx context.Context, topic string) error {
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	if err := b.engine.RunMover(ctx, topic); err != nil {
		return fmt.Errorf("eventbus: run the schedule of %s: %w", topic, err)
	}
	return nil
}

// checkSchedule returns an error that says why events of topic cannot be scheduled, or nil.
func checkSchedule(b *Bus, topic string) error {
	if err := checkTopic(topic); err != nil {
		return err
	}
	err := later.Check(b.engine.Backend(), topic)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return &FieldError{Field: "topic", Reason: "is too long for scheduled events, whose topic has a longer name: it " + err.Error()}
	}
	if err != nil {
		return fmt.Errorf("eventbus: schedule events of %s: %w", topic, err)
	}
	return nil
}

// when says when events are published. The zero value means now.
type when struct {
	due   time.Time                                           // not zero: at this time
	entry func(ctx context.Context, m *backend.Message) error // not nil: the only event is the event of a recurring entry, which entry stores
}

func publishLater(ctx context.Context, b *Bus, topic string, w when, events []*Event) error {
	var err error
	if b.publish == nil {
		err = b.store(ctx, topic, events, nil, w)
	} else {
		err = b.publishCopies(ctx, topic, events, nil, w)
	}
	b.engine.WakeMover(topic)
	return err
}

// schedule turns the messages of events into records of events that are due at a time.
func (s *encoder) schedule(due time.Time, events []*Event) {
	for i, m := range s.pointers {
		later.Schedule(m, due, events[i].TTL)
	}
}

// A Recurring is an entry that publishes an event again and again.
type Recurring struct {
	ID    string // names the entry within its topic; at most 480 bytes
	Topic string

	// Every is the time between two events, at least a second. The first event comes one
	// Every after Recur has stored the entry. Either Every or Cron is set.
	Every time.Duration

	// Cron has the times of the events, in the five fields of cron or a descriptor such as
	// "@daily". Times that a change to daylight saving time skips are one hour later, and
	// times that come twice count once.
	Cron string

	// Zone is the time zone of Cron, such as "Europe/Berlin". Default UTC.
	Zone string

	// Missed says which events are published that no process could publish in time, because
	// none ran or the topic was full. Default FireOnce.
	Missed Missed

	// MaxMissed bounds the events of FireAll: the latest ones are published. Default 1,000.
	MaxMissed int

	// Event is copied for each time. The copy has the ID ID+"/"+time, with the time in the
	// form of RFC 3339 in UTC, and this time as Time.
	Event Event
}

// Missed says what happens with the events of a recurring entry that are late. An event counts
// as missed if the following one is due too.
type Missed string

// The values of Recurring.Missed.
const (
	FireOnce Missed = "once" // one event is published for all missed ones
	FireNone Missed = "none" // none
	FireAll  Missed = "all"  // all, at most MaxMissed
)

const (
	maxRecurringID   = 480
	defaultMaxMissed = 1000
)

// Recur stores a recurring entry in the topic r.Topic, or replaces the entry of the same ID.
// An equal entry stays as it is, so that each process can call Recur at its start. A paused
// entry stays paused.
//
// The events of the entry are scheduled one after another, as by [Bus.PublishAt], and with
// the same promises. Exactly one event is published for each time, by the broker's clock, with
// any number of processes. No leader is elected: the log of the topic decides which event
// is published.
func (b *Bus) Recur(ctx context.Context, r Recurring) error {
	if err := r.Check(); err != nil {
		return err
	}
	if err := checkSchedule(b, r.Topic); err != nil {
		return err
	}
	p := r.plan()
	var err error
	if p.Print, err = r.digest(); err != nil {
		return err
	}
	e := r.Event
	e.ID = r.ID
	w := when{entry: func(ctx context.Context, m *backend.Message) error {
		return b.later.Enter(ctx, m, r.ID, p, e.TTL)
	}}
	return publishLater(ctx, b, r.Topic, w, []*Event{&e})
}

func (r *Recurring) plan() later.Plan {
	p := later.Plan{Every: r.Every, Cron: r.Cron, Zone: r.Zone, Missed: later.Missed(cmp.Or(r.Missed, FireOnce)), Max: r.MaxMissed}
	if r.Missed == FireAll {
		p.Max = cmp.Or(p.Max, defaultMaxMissed)
	}
	return p
}

// Check returns the *FieldError with which Recur would refuse r, or nil. It does not check
// the name of the topic.
func (r *Recurring) Check() error {
	field := func(name, reason string) error { return &FieldError{Field: "Recurring." + name, Reason: reason} }
	p := r.plan()
	switch err := p.Check(); {
	case r.ID == "":
		return field("ID", "is empty")
	case len(r.ID) > maxRecurringID:
		return field("ID", fmt.Sprintf("has %d bytes, more than %d", len(r.ID), maxRecurringID))
	case err != nil:
		return &FieldError{Field: "Recurring", Reason: err.Error()}
	case r.Missed != "" && r.Missed != FireOnce && r.Missed != FireNone && r.Missed != FireAll:
		return field("Missed", fmt.Sprintf("is %q, want %q, %q or %q", r.Missed, FireOnce, FireNone, FireAll))
	case r.MaxMissed != 0 && r.Missed != FireAll:
		return field("MaxMissed", "is set, but Missed is not FireAll")
	case r.MaxMissed < 0:
		return field("MaxMissed", "is negative")
	case r.Event.Once != "":
		return field("Event.Once", "is set, but each event has a text of its own")
	}
	if _, err := r.digest(); err != nil {
		return err
	}
	return checkText("Recurring.ID", r.ID)
}

// digest returns a digest of the event as the program gave it. A PublishMiddleware may change
// the event into something else each time, such as a ciphertext.
func (r *Recurring) digest() (string, error) {
	e := r.Event
	e.ID, e.Time = r.ID, time.Unix(0, 0)
	m, err := MessageOf("topic", &e)
	if err != nil {
		if f, ok := errors.AsType[*FieldError](err); ok {
			f.Field = "Recurring.Event." + f.Field
		}
		return "", err
	}
	h := sha256.New()
	for _, text := range []string{m.Key, e.TTL.String(), string(m.Payload)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	for _, header := range m.Headers {
		_, _ = io.WriteString(h, header.Name+"\n"+header.Value+"\n")
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// EndRecurring ends the recurring entries of topic with these IDs, and reports for each
// whether there was one. An event of an entry that is not due yet is never published.
func (b *Bus) EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	if err := checkSchedule(b, topic); err != nil {
		return make([]bool, len(ids)), err
	}
	ended, err := b.later.Forget(ctx, topic, ids)
	if err != nil {
		return ended, fmt.Errorf("eventbus: end recurring events of %s: %w", topic, err)
	}
	b.engine.WakeMover(topic)
	return ended, nil
}

// PauseRecurring pauses or resumes the recurring entry of topic with this ID. A paused entry
// publishes nothing. After it is resumed, it publishes no event for the time of its pause. If
// there is no such entry, the error matches ErrGone.
func (b *Bus) PauseRecurring(ctx context.Context, topic, id string, paused bool) error {
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	if err := b.later.Pause(ctx, topic, id, paused); err != nil {
		return fmt.Errorf("eventbus: pause recurring events of %s: %w", topic, err)
	}
	b.engine.WakeMover(topic)
	return nil
}

// A RecurringState is a recurring entry in the broker.
type RecurringState struct {
	Recurring
	Paused bool
	Next   time.Time // when the next event is due; zero if the entry is paused or has no further time
}

// RecurringEntries returns the recurring entries of topic, sorted by ID.
func (b *Bus) RecurringEntries(ctx context.Context, topic string) ([]RecurringState, error) {
	if err := checkSchedule(b, topic); err != nil {
		return nil, err
	}
	v, err := b.later.Look(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("eventbus: recurring events of %s: %w", topic, err)
	}
	var states []RecurringState
	for _, r := range v.Entries() {
		p := r.Plan
		states = append(states, RecurringState{
			Recurring: Recurring{
				ID: r.ID, Topic: topic, Every: p.Every, Cron: p.Cron, Zone: p.Zone, Missed: Missed(p.Missed), MaxMissed: p.Max,
				Event: EventOf(r.Event()),
			},
			Paused: p.Paused, Next: r.Next(),
		})
	}
	return states, nil
}
