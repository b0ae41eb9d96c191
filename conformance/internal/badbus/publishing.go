package badbus

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed41896749/eventbus"
)

var published atomic.Int64

// publishing has the saboteurs that break the promises of Publish.
var publishing = []Saboteur{
	{
		Name: "bus-loses-one-in-ten", Breaks: "what is published is stored, mostly",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			kept := slices.DeleteFunc(slices.Clone(events), func(*eventbus.Event) bool { return published.Add(1)%10 == 0 })
			return b.good.PublishReceipts(ctx, topic, kept...)
		},
	},
	{
		Name: "bus-without-dedup", Breaks: "Dedup is accepted, and ignored",
		options: func(o *eventbus.Options) { o.Dedup = false },
	},
	{
		Name: "bus-never-rejects", Breaks: "WhenFull is accepted, and ignored",
		options: func(o *eventbus.Options) { o.WhenFull = eventbus.WaitWhenFull },
	},
	{
		Name: "bus-cuts-payloads", Breaks: "a payload is stored up to the limit",
		publish: eachEvent(func(e *eventbus.Event) { e.Payload = e.Payload[:min(len(e.Payload), eventbus.MaxPayload)] }),
	},
	{
		Name: "bus-trims-payloads", Breaks: "a payload is stored without outer spaces",
		publish: eachEvent(func(e *eventbus.Event) { e.Payload = bytes.TrimSpace(e.Payload) }),
	},
	{
		Name: "bus-drops-attributes", Breaks: "most attributes arrive",
		publish: eachEvent(func(e *eventbus.Event) { e.Subject = "" }),
	},
	{
		Name: "bus-drops-large", Breaks: "small events arrive",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			small := slices.DeleteFunc(slices.Clone(events), func(e *eventbus.Event) bool { return len(e.Payload) > 64<<10 })
			return b.good.PublishReceipts(ctx, topic, small...)
		},
	},
	{
		Name: "bus-reverses-keys", Breaks: "events of a call are stored in some order",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			reversed := slices.Clone(events)
			slices.Reverse(reversed)
			return b.good.PublishReceipts(ctx, topic, reversed...)
		},
	},
	{
		Name: "bus-blurs-errors", Breaks: "a Publish says that something failed",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			receipts, err := b.good.PublishReceipts(ctx, topic, events...)
			if err != nil {
				err = errors.New("something failed")
			}
			return receipts, err
		},
	},
	{
		Name: "bus-ignores-contexts", Breaks: "a Publish returns when it is stored",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			return b.good.PublishReceipts(context.WithoutCancel(ctx), topic, events...)
		},
	},
	{
		Name: "bus-mends-names", Breaks: "every name is welcome",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			return b.good.PublishReceipts(ctx, mend(topic), events...)
		},
	},
	{
		Name: "bus-forgets-positions", Breaks: "a receipt has most fields",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			receipts, err := b.good.PublishReceipts(ctx, topic, events...)
			for i := range receipts {
				receipts[i].Position = ""
			}
			return receipts, err
		},
	},
	{
		Name: "bus-writes-into-events", Breaks: "Publish fills in the events of its caller",
		publish: func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
			receipts, err := b.good.PublishReceipts(ctx, topic, events...)
			for i, r := range receipts {
				events[i].ID = r.ID
			}
			return receipts, err
		},
	},
}

// eachEvent returns a Publish that calls change with a copy of each event, and publishes
// the copies.
func eachEvent(change func(*eventbus.Event)) func(*Bus, context.Context, string, []*eventbus.Event) ([]eventbus.Receipt, error) {
	return func(b *Bus, ctx context.Context, topic string, events []*eventbus.Event) ([]eventbus.Receipt, error) {
		changed := make([]*eventbus.Event, len(events))
		for i, e := range events {
			c := *e
			change(&c)
			changed[i] = &c
		}
		return b.good.PublishReceipts(ctx, topic, changed...)
	}
}

// mend changes any text to a valid name.
func mend(name string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return 'x'
	}, name)[:min(len(name), 190)]+"x", ".")
}
