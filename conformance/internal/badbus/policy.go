package badbus

import (
	"context"

	"github.com/seed41896749/eventbus"
)

// deciding has the saboteurs that break the promises about failures.
var deciding = []Saboteur{
	{
		Name: "bus-forgets-rules", Breaks: "all errors are alike",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Retry.Rules = nil },
	},
	{
		Name: "bus-forgets-retry-of-events", Breaks: "an event is retried as the subscription says",
		publish: eachEvent(func(e *eventbus.Event) { e.Retry = nil }),
	},
	{
		Name: "bus-forgets-ttl", Breaks: "an event is never too old",
		publish: eachEvent(func(e *eventbus.Event) { e.TTL = 0 }),
	},
	{
		Name: "bus-reads-all-sizes", Breaks: "an event is never too large",
		subscribe: func(o *eventbus.SubscribeOptions) { o.MaxReceive = 0 },
	},
	{
		Name: "bus-tells-no-dead-letter", Breaks: "who wants dead letters reads their topic",
		subscribe: func(o *eventbus.SubscribeOptions) { o.OnDeadLetter = nil },
	},
	{
		Name: "bus-forgets-redelivered", Breaks: "each run of a handler is the first",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			return func(ctx context.Context, d *eventbus.Delivery) error {
				d.Redelivered = false
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-retries-timeouts", Breaks: "a timeout is a failure",
		subscribe: func(o *eventbus.SubscribeOptions) { o.LeaveTimeouts = false },
	},
}
