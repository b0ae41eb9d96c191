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
		Name: "bus-forgets-max-bytes", Breaks: "MaxBytes is accepted, and ignored",
		subscribe: func(o *eventbus.SubscribeOptions) { o.MaxBytes = -1 },
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
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			receipts, err := b.good.PublishReceipts(ctx, topic, events...)
			if errors.Is(err, eventbus.ErrDropped) {
				err = nil
			}
			return receipts, err
		},
	},
}

// overrun is a limiter that grants all requested places, without a bound in bytes, if the
// real limiter grants at least one place. The real limiter never learns of held messages.
type overrun struct{ limiter.Limiter }

func (o *overrun) Acquire(ctx context.Context, max int) (limiter.Grant, error) {
	g, err := o.Limiter.Acquire(ctx, max)
	if g.Messages == 0 {
		return g, err
	}
	o.Limiter.Fill(g, 0, 0)
	return limiter.Grant{Messages: max}, err
}

func (o *overrun) Fill(limiter.Grant, int, int64) {}

func (o *overrun) Release(r limiter.Released) {
	r.Settled, r.Bytes = 0, 0
	o.Limiter.Release(r)
}

// hiding is a limiter that reports failed runs to the real limiter as successful.
type hiding struct{ limiter.Limiter }

func (h *hiding) Release(r limiter.Released) {
	r.Failed = 0
	h.Limiter.Release(r)
}
