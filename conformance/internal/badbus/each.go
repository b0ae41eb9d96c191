package badbus

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/request"
)

// each has the saboteurs that break promises about EachInstance, the settings of topics and
// paused groups.
var each = []Saboteur{
	{
		Name: "bus-shares-each", Breaks: "the instances of a program are one group",
		subscribe: eachInstance(func(o *eventbus.SubscribeOptions) { o.Group, o.Start = "each", eventbus.StartLatest }),
	}, {
		Name: "bus-buries-each", Breaks: "an event that fails for good is a dead letter",
		subscribe: eachInstance(func(o *eventbus.SubscribeOptions) { o.DeadLetter = "orders.dlq" }),
	}, {
		Name: "bus-starts-each-early", Breaks: "an instance that begins gets all there is",
		subscribe: eachInstance(func(o *eventbus.SubscribeOptions) { o.Start = eventbus.StartAt(time.Unix(1, 0)) }),
	}, {
		Name: "bus-starts-each-late", Breaks: "an instance gets what comes after it",
		subscribe: eachInstance(func(o *eventbus.SubscribeOptions) { o.Start = eventbus.StartLatest }),
	}, {
		Name: "bus-hides-pauses", Breaks: "a group without events is idle",
		backend: func(b backend.Backend) backend.Backend { return &unpaused{b} },
	}, {
		Name: "bus-mixes-replies", Breaks: "a reply is for whoever waits",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			for _, e := range events {
				if topic == "replies" {
					last, _ := e.Headers.Lookup(request.Correlation)
					if before := b.reply.Swap(last); before != nil {
						e.Headers.Set(request.Correlation, before.(string))
					}
				}
			}
			return b.good.PublishReceipts(ctx, topic, events...)
		},
	}, {
		Name: "bus-forgets-topics", Breaks: "settings of topics are for operators",
		options: func(o *eventbus.Options) { o.Topics = nil },
	},
}

func eachInstance(change func(*eventbus.SubscribeOptions)) func(*eventbus.SubscribeOptions) {
	return func(o *eventbus.SubscribeOptions) {
		if o.Group == eventbus.EachInstance {
			change(o)
		}
	}
}

// unpaused is a backend whose members of paused groups wait.
type unpaused struct{ backend.Backend }

func (u *unpaused) Unwrap() backend.Backend { return u.Backend }

func (u *unpaused) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := u.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &waiting{src}, nil
}

type waiting struct{ backend.Source }

func (w *waiting) Unwrap() backend.Source { return w.Source }

func (w *waiting) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := w.Source.Receive(ctx, max, maxBytes)
	if errors.Is(err, backend.ErrPaused) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return ds, err
}
