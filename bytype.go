package eventbus

import (
	"context"
	"fmt"
	"maps"
)

// ByType returns a handler that passes each event to the entry of handlers for its Type. If
// there is no entry, it passes the event to fallback. If fallback is nil too, the event is
// a [Permanent] failure. ByType copies handlers, and panics if one of them is nil.
func ByType(handlers map[string]Handler, fallback Handler) Handler {
	handlers = maps.Clone(handlers)
	for name, h := range handlers {
		if h == nil {
			panic(fmt.Sprintf("eventbus: ByType: the handler of %q is nil", name))
		}
	}
	return func(ctx context.Context, d *Delivery) error {
		if h, ok := handlers[d.Type]; ok {
			return h(ctx, d)
		}
		if fallback == nil {
			return Permanent(fmt.Errorf("eventbus: no handler for events of type %q", d.Type))
		}
		return fallback(ctx, d)
	}
}
