package badbus

import "github.com/seed41896749/eventbus"

// elastic has the saboteurs that break promises about a number of handlers that changes.
var elastic = []Saboteur{
	{
		Name: "bus-fixes-concurrency", Breaks: "a number of handlers is for ever",
		subscribe: func(o *eventbus.SubscribeOptions) { o.MaxConcurrency = 0 },
	}, {
		Name: "bus-scales-beyond", Breaks: "a bound of handlers is a wish",
		subscribe: func(o *eventbus.SubscribeOptions) { o.MaxConcurrency += 2 },
	},
}
