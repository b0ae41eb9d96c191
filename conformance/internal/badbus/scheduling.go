package badbus

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/seed41896749/eventbus"
)

// scheduling has the saboteurs that break the promises about scheduled events.
var scheduling = []Saboteur{
	{
		Name: "bus-publishes-early", Breaks: "an event may come before it is due",
		at: func(b *Bus, ctx context.Context, topic string, _ time.Time, events []*eventbus.Event) error {
			return b.good.Publish(ctx, topic, events...)
		},
	},
	{
		Name: "bus-forgets-scheduled", Breaks: "an event that is due later is the affair of its publisher",
		at: func(_ *Bus, _ context.Context, _ string, _ time.Time, _ []*eventbus.Event) error { return nil },
	},
	{
		Name: "bus-schedules-in-memory", Breaks: "a scheduled event is kept by its process",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			time.AfterFunc(time.Until(at), func() { _ = b.good.Publish(context.WithoutCancel(ctx), topic, events...) })
			return nil
		},
	},
	{
		Name: "bus-rounds-times", Breaks: "events are due at full minutes",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			return b.good.PublishAt(ctx, topic, at.Truncate(time.Minute).Add(2*time.Minute), events...)
		},
	},
	{
		Name: "bus-loses-scheduled", Breaks: "what is scheduled is stored, mostly",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			kept := slices.DeleteFunc(slices.Clone(events), func(*eventbus.Event) bool { return published.Add(1)%10 == 0 })
			return b.good.PublishAt(ctx, topic, at, kept...)
		},
	},
	{
		Name: "bus-mends-scheduled", Breaks: "every name and every event is welcome",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			events = slices.DeleteFunc(slices.Clone(events), func(e *eventbus.Event) bool { return len(e.Payload) > eventbus.MaxPayload })
			return b.good.PublishAt(ctx, mend(topic), at, events...)
		},
	},
	{
		Name: "bus-ignores-max-payload", Breaks: "MaxPayload is accepted, and ignored",
		options: func(o *eventbus.Options) { o.MaxPayload = 0 },
	},
	{
		Name: "bus-adds-to-scheduled", Breaks: "an event scheduled again comes again",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			var copies []*eventbus.Event
			for _, e := range events {
				c := *e
				c.ID = fmt.Sprint(e.ID, "/", published.Add(1))
				copies = append(copies, &c)
			}
			return b.good.PublishAt(ctx, topic, at, copies...)
		},
	},
	{
		Name: "bus-schedules-the-past", Breaks: "an event is due after the call",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			if at.Before(time.Now()) {
				at = time.Now().Add(time.Hour)
			}
			return b.good.PublishAt(ctx, topic, at, events...)
		},
	},
	{
		Name: "bus-ages-scheduled", Breaks: "TTL counts from the call of PublishAt",
		at: func(b *Bus, ctx context.Context, topic string, at time.Time, events []*eventbus.Event) error {
			var copies []*eventbus.Event
			for _, e := range events {
				c := *e
				if c.TTL > 0 {
					c.TTL = max(c.TTL-time.Until(at), 1)
				}
				copies = append(copies, &c)
			}
			return b.good.PublishAt(ctx, topic, at, copies...)
		},
	},
	{
		Name: "bus-cancels-in-words", Breaks: "an event is cancelled when somebody asked for it",
		cancel: func(_ *Bus, _ context.Context, _ string, ids []string) ([]bool, error) {
			return slices.Repeat([]bool{true}, len(ids)), nil
		},
	},
	{
		Name: "bus-cancels-in-silence", Breaks: "nobody needs to know whether an event was cancelled",
		cancel: func(b *Bus, ctx context.Context, topic string, ids []string) ([]bool, error) {
			_, err := b.good.CancelScheduled(ctx, topic, ids...)
			return make([]bool, len(ids)), err
		},
	},
	{
		Name: "bus-lists-nothing", Breaks: "a schedule is nobody's affair",
		list: func(*Bus, context.Context, string) iter.Seq2[eventbus.ScheduledEvent, error] {
			return func(func(eventbus.ScheduledEvent, error) bool) {}
		},
	},
	{
		Name: "bus-ignores-event-once", Breaks: "Event.Once is accepted, and ignored",
		publish: eachEvent(func(e *eventbus.Event) { e.Once = "" }),
	},
}

// repeating has the saboteurs that break the promises about recurring events.
var repeating = []Saboteur{
	{
		Name: "bus-never-fires", Breaks: "an entry is stored, and that is all",
		recur: func(*Bus, context.Context, eventbus.Recurring) error { return nil },
	},
	{
		Name: "bus-fires-per-process", Breaks: "each process fires its entries",
		recur: func(b *Bus, ctx context.Context, r eventbus.Recurring) error {
			r.ID += fmt.Sprintf("%p", b)
			return b.good.Recur(ctx, r)
		},
	},
	{
		Name: "bus-restarts-entries", Breaks: "Recur begins an entry",
		recur: func(b *Bus, ctx context.Context, r eventbus.Recurring) error {
			if _, err := b.good.EndRecurring(ctx, r.Topic, r.ID); err != nil {
				return err
			}
			return b.good.Recur(ctx, r)
		},
	},
	{
		Name: "bus-keeps-entries", Breaks: "an entry is never replaced",
		recur: func(b *Bus, ctx context.Context, r eventbus.Recurring) error {
			states, err := b.good.RecurringEntries(ctx, r.Topic)
			if slices.ContainsFunc(states, func(s eventbus.RecurringState) bool { return s.ID == r.ID }) {
				return err
			}
			return b.good.Recur(ctx, r)
		},
	},
	{
		Name: "bus-ends-nothing", Breaks: "a recurring event is for ever",
		ends: func(_ *Bus, _ context.Context, _ string, ids []string) ([]bool, error) {
			return slices.Repeat([]bool{true}, len(ids)), nil
		},
	},
	{
		Name: "bus-never-pauses", Breaks: "a pause is accepted, and ignored",
		pauses: func(*Bus, context.Context, string, string, bool) error { return nil },
	},
	{
		Name: "bus-makes-up-for-all", Breaks: "every firing happens, however late",
		recur: func(b *Bus, ctx context.Context, r eventbus.Recurring) error {
			r.Missed = eventbus.FireAll
			return b.good.Recur(ctx, r)
		},
	},
}

// PublishAt calls the saboteur's at if it is set, or else PublishAt of the good bus.
func (b *Bus) PublishAt(ctx context.Context, topic string, at time.Time, events ...*eventbus.Event) error {
	if b.s.at != nil {
		return b.s.at(b, ctx, topic, at, events)
	}
	return b.good.PublishAt(ctx, topic, at, events...)
}

// PublishIn is PublishAt with a saboteur, or else PublishIn of the good bus.
func (b *Bus) PublishIn(ctx context.Context, topic string, in time.Duration, events ...*eventbus.Event) error {
	if b.s.at != nil {
		return b.s.at(b, ctx, topic, time.Now().Add(in), events)
	}
	return b.good.PublishIn(ctx, topic, in, events...)
}

// CancelScheduled calls the saboteur's cancel if it is set, or else the good bus.
func (b *Bus) CancelScheduled(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	if b.s.cancel != nil {
		return b.s.cancel(b, ctx, topic, ids)
	}
	return b.good.CancelScheduled(ctx, topic, ids...)
}

// Scheduled calls the saboteur's list if it is set, or else the good bus.
func (b *Bus) Scheduled(ctx context.Context, topic string) iter.Seq2[eventbus.ScheduledEvent, error] {
	if b.s.list != nil {
		return b.s.list(b, ctx, topic)
	}
	return b.good.Scheduled(ctx, topic)
}

// Recur calls the saboteur's recur if it is set, or else the good bus.
func (b *Bus) Recur(ctx context.Context, r eventbus.Recurring) error {
	if b.s.recur != nil {
		return b.s.recur(b, ctx, r)
	}
	return b.good.Recur(ctx, r)
}

// EndRecurring calls the saboteur's ends if it is set, or else the good bus.
func (b *Bus) EndRecurring(ctx context.Context, topic string, ids ...string) ([]bool, error) {
	if b.s.ends != nil {
		return b.s.ends(b, ctx, topic, ids)
	}
	return b.good.EndRecurring(ctx, topic, ids...)
}

// PauseRecurring calls the saboteur's pauses if it is set, or else the good bus.
func (b *Bus) PauseRecurring(ctx context.Context, topic, id string, paused bool) error {
	if b.s.pauses != nil {
		return b.s.pauses(b, ctx, topic, id, paused)
	}
	return b.good.PauseRecurring(ctx, topic, id, paused)
}

// RecurringEntries calls the good bus.
func (b *Bus) RecurringEntries(ctx context.Context, topic string) ([]eventbus.RecurringState, error) {
	return b.good.RecurringEntries(ctx, topic)
}
