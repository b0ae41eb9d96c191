package eventbus

import (
	"context"
	"errors"
	"fmt"
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

// PublishAt encodes vs as events of topic t, and schedules them in one call of s.PublishAt.
func (t Topic[T]) PublishAt(ctx context.Context, s Scheduler, at time.Time, vs ...T) error {
	events, err := t.events(vs)
	if err != nil {
		return err
	}
	return s.PublishAt(ctx, t.Name, at, events...)
}

// PublishIn is like [Topic.PublishAt], but calls s.PublishIn.
func (t Topic[T]) PublishIn(ctx context.Context, s Scheduler, in time.Duration, vs ...T) error {
	events, err := t.events(vs)
	if err != nil {
		return err
	}
	return s.PublishIn(ctx, t.Name, in, events...)
}
