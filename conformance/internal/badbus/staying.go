package badbus

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// staying has the saboteurs that break promises about faults that stay, and about lost
// groups.
var staying = []Saboteur{
	{
		Name: "bus-buries-once", Breaks: "an event has one dead letter in its life",
		backend: func(b backend.Backend) backend.Backend { return &buryingOnce{Backend: b} },
	},
	{
		Name: "bus-forgets-received", Breaks: "what fails after it was acknowledged is forgotten",
		subscribe: func(o *eventbus.SubscribeOptions) { o.DeadLetterOnReceive = false },
	},
	{
		Name: "bus-tries-again", Breaks: "an event that failed for good is tried again after a while",
		handler: wrapped(func(error) error { return eventbus.Snooze(time.Second) }),
	},
	{
		Name: "bus-retries-at-once", Breaks: "a failed event runs again in place",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				if next(ctx, d) == nil {
					return nil
				}
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-retries-late", Breaks: "a failed event rests for minutes at least",
		handler: wrapped(func(error) error { return eventbus.Snooze(5 * time.Minute) }),
	},
	{
		Name: "bus-loses-manual", Breaks: "a delivery can be settled if its context says so",
		manual: func(next eventbus.ManualHandler) eventbus.ManualHandler {
			return func(ctx context.Context, d *eventbus.ManualDelivery) error {
				return next(ctx, &eventbus.ManualDelivery{Delivery: d.Delivery})
			}
		},
	},
	{
		Name: "bus-attaches-at-the-end", Breaks: "a group that is made anew begins with new events",
		backend: func(b backend.Backend) backend.Backend { return &attachingLate{Backend: b} },
	},
}

// buryingOnce is a backend that stores one dead letter of each event, and says that it stored
// the others.
type buryingOnce struct {
	backend.Backend
	buried sync.Map // by ID of the event
}

func (b *buryingOnce) Unwrap() backend.Backend { return b.Backend }

func (b *buryingOnce) Publish(ctx context.Context, msgs []*backend.Message) error {
	var kept []*backend.Message
	for _, m := range msgs {
		_, again := b.buried.Load(m.Headers.Get("eventbus-dead-id"))
		if again && strings.HasSuffix(m.Topic, ".dlq") {
			continue
		}
		kept = append(kept, m)
	}
	err := b.Backend.Publish(ctx, kept)
	if err != nil {
		return err
	}
	for _, m := range kept {
		if strings.HasSuffix(m.Topic, ".dlq") {
			b.buried.Store(m.Headers.Get("eventbus-dead-id"), true)
		}
	}
	return nil
}

// attachingLate is a backend on which a second Attach to a group begins with new messages.
type attachingLate struct {
	backend.Backend
	seen sync.Map // by topic and group
}

func (a *attachingLate) Unwrap() backend.Backend { return a.Backend }

func (a *attachingLate) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	if _, again := a.seen.LoadOrStore(c.Topic+"/"+c.Group, true); again {
		c.Start = backend.StartLatest
	}
	return a.Backend.Attach(ctx, c)
}
