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

// A Scheduler publishes events at a later time. A [Bus] is one.
type Scheduler interface {
	// PublishAt publishes events at a time; see [Bus.PublishAt].
	PublishAt(ctx context.Context, topic string, at time.Time, events ...*Event) error

	// PublishIn publishes events after a duration; see [Bus.PublishIn].
	PublishIn(ctx context.Context, topic string, in time.Duration, events ...*Event) error
}

var _ Scheduler = (*Bus)(nil)

// PublishAt schedules events to be published in topic at a later time, however far ahead. It
// returns when they are stored as durably as Publish stores events, in a topic named
// topic+".later". If at is zero or has passed, PublishAt publishes the events now.
//
// No event is published before the time at, by the broker's clock. (Backends without a clock use
// those of the processes.) Any process with a subscription to the topic publishes the event,
// whichever comes first; without a subscription, run "eventbus schedule run" or
// [Bus.RunSchedule]. Usually the event is a few milliseconds late. While nothing is scheduled,
// the other processes look only every five seconds, so the first event may be up to five seconds
// late if it is due sooner than that.
//
// If no such process is running, or the topic is full, events wait. They are published later in
// the order of their times, so the events of a key keep this order. While a failure holds them
// up, Observer.Failed reports it with the scope observer.Schedule.
//
// An event with the ID of a scheduled event replaces it. TTL and Retry count from the time at
// which the event is published. If a process crashes while it publishes events, none is stored
// twice, provided that the backend remembers IDs and another process continues within
// Limits.OnceWindow.
//
// The backend must implement Reader and Remover; otherwise the error matches
// errors.ErrUnsupported. The name of the topic can have at most 188 bytes.
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
			return fmt.Errorf("eventbus: publish in %s at a later time: %w", topic, err)
		}
		if !at.After(now) {
			return b.Publish(ctx, topic, events...)
		}
	}
	return publishLater(ctx, b, topic, publishTime{due: at}, events)
}

// PublishIn is like [Bus.PublishAt] for the time that is in from now, by the broker's clock.
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
	return publishLater(ctx, b, topic, publishTime{due: now.Add(in)}, events)
}

// A ScheduledEvent is an event that has yet to be published.
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

// CancelScheduled cancels scheduled events of topic by their IDs. It returns for each ID whether
// its event will certainly never be published: false means that the event is published or about
// to be, or that no scheduled event has this ID. After an error the outcome is unknown.
//
// The first call for a topic reads all of its scheduled events, and later calls read only the new
// ones. After a minute without a call, the next one reads all of them again.
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
// bus is shut down. Every subscription to the topic does this by itself, so only a program
// without one needs to call it.
func (b *Bus) RunSchedule(ctx context.Context, topic string) error {
	if err := checkSchedule(b, topic); err != nil {
		return err
	}
	if err := b.engine.RunMover(ctx, topic); err != nil {
		return fmt.Errorf("eventbus: run the schedule of %s: %w", topic, err)
	}
	return nil
}

// checkSchedule returns an error if events of topic cannot be scheduled.
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

// A publishTime says when events are published. The zero value means now.
type publishTime struct {
	due   time.Time                                           // if not zero, at this time
	entry func(ctx context.Context, m *backend.Message) error // if not nil, the only event belongs to a recurring entry, which entry stores
}

func publishLater(ctx context.Context, b *Bus, topic string, w publishTime, events []*Event) error {
	var err error
	if b.publish == nil {
		err = b.store(ctx, topic, events, nil, w)
	} else {
		err = b.publishCopies(ctx, topic, events, nil, w)
	}
	b.engine.WakeMover(topic)
	return err
}

// schedule turns the messages of events into records of events that are due later.
func (s *encoder) schedule(due time.Time, events []*Event) {
	for i, m := range s.pointers {
		later.Schedule(m, due, events[i].TTL)
	}
}

// A Recurring is an entry in the broker that publishes an event again and again.
type Recurring struct {
	ID    string // names the entry within its topic; at most 480 bytes
	Topic string

	// Every is the time between two events, at least a second. The first event comes one Every
	// after Recur has stored the entry. Set either Every or Cron.
	Every time.Duration

	// Cron gives the times of the events, in the five fields of cron or as a descriptor such as
	// "@daily". Times that a change to daylight saving time skips come one hour later, and times
	// that occur twice count once.
	Cron string

	// Zone is the time zone of Cron, such as "Europe/Berlin". Default UTC.
	Zone string

	// Missed says what happens to events that no process could publish in time, because none was
	// running or the topic was full. Default FireOnce.
	Missed Missed

	// MaxMissed limits the events of FireAll to the latest ones. Default 1,000.
	MaxMissed int

	// Event is copied for each time. The copy has this time as its Time, and as its ID the
	// entry's ID, "/" and the time in RFC 3339 and UTC.
	Event Event
}

// Missed says what happens to the events of a recurring entry that are late. An event counts as
// missed once the next one is due too.
type Missed string

// The values of Recurring.Missed.
const (
	FireOnce Missed = "once" // publish one event for all missed ones
	FireNone Missed = "none" // publish none of them
	FireAll  Missed = "all"  // publish all of them, at most MaxMissed
)

const (
	maxRecurringID   = 480
	defaultMaxMissed = 1000
)

// Recur stores a recurring entry in the topic r.Topic, or replaces the entry with the same ID. An
// equal entry stays as it is, so every process can call Recur when it starts. A paused entry
// stays paused.
//
// The events of the entry are scheduled one after another, as by [Bus.PublishAt] and with the
// same guarantees. However many processes are running, exactly one event is published for each
// time, by the broker's clock. No leader is elected: the log of the topic decides which event is
// published.
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
	w := publishTime{entry: func(ctx context.Context, m *backend.Message) error {
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

// Check returns the *FieldError with which Recur would refuse r, or nil. It does not check the
// name of the topic.
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
		return field("Event.Once", "is set, but each event gets a text of its own")
	}
	if _, err := r.digest(); err != nil {
		return err
	}
	return checkText("Recurring.ID", r.ID)
}

// digest returns a digest of the event as the program gave it, so that Recur recognizes an equal
// entry. Digests of the stored event would not do: a PublishMiddleware may produce a different
// one each time, such as a ciphertext.
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

// EndRecurring ends the recurring entries of topic with these IDs, and reports for each whether
// there was one. An event of the entry that is not due yet is never published.
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
// publishes nothing, and after it resumes it does not make up for the time of its pause. If there
// is no such entry, the error matches [backend.ErrGone].
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
