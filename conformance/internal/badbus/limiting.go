package badbus

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/limiter"
)

// limiting has the saboteurs that break the promises about rates and limits.
var limiting = []Saboteur{
	{
		Name: "bus-ignores-limiters", Breaks: "Limiter is accepted, and ignored",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Limiter = nil },
	},
	{
		Name: "bus-overruns-limiters", Breaks: "while a limiter grants anything, as much is read as there are handlers",
		subscribe: func(o *eventbus.SubscribeOptions) {
			if o.Limiter != nil {
				o.Limiter = &overrun{o.Limiter}
			}
		},
	},
	{
		Name: "bus-hides-failed-runs", Breaks: "a limiter is told that every run succeeded",
		subscribe: func(o *eventbus.SubscribeOptions) {
			if o.Limiter != nil {
				o.Limiter = &hiding{o.Limiter}
			}
		},
	},
	{
		Name: "bus-forgets-max-redelivered", Breaks: "MaxRedelivered is accepted, and ignored",
		subscribe: func(o *eventbus.SubscribeOptions) { o.MaxRedelivered = 0 },
	},
	{
		Name: "bus-drops-the-newest", Breaks: "when too much waits, some event is dropped",
		options: func(o *eventbus.Options) { o.WhenFull = min(o.WhenFull, eventbus.DropNewest) },
	},
	{
		Name: "bus-hides-drops", Breaks: "a Publish whose events are dropped succeeds",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) error {
			if err := b.good.Publish(ctx, topic, events...); !errors.Is(err, eventbus.ErrDropped) {
				return err
			}
			return nil
		},
	},
}

// overrun is a limiter that grants all requested places if the real limiter grants at least
// one.
type overrun struct{ limiter.Limiter }

func (o *overrun) Acquire(ctx context.Context, max int) (int, error) {
	n, err := o.Limiter.Acquire(ctx, max)
	if n > 0 {
		n = max
	}
	return n, err
}

// hiding is a limiter that reports failed runs to the real limiter as successful.
type hiding struct{ limiter.Limiter }

func (h *hiding) Release(r limiter.Released) {
	r.Failed = 0
	h.Limiter.Release(r)
}
