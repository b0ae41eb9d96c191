package eventbus

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"github.com/seed41896749/eventbus/internal/engine"
)

// ByType returns a handler of the same kind as handlers, which passes each event to the entry
// for its Type. If there is no entry, it passes the event to fallback. If fallback is nil, the
// event is a [Permanent] failure. For a [BatchHandler], each entry gets the events of its Type
// that are in the batch, one entry after another. One Subscribe with ByType handles several
// types in one group:
//
//	bus.Subscribe(ctx, placed.Name, o, eventbus.ByType(map[string]eventbus.Handler{
//		placed.Type:    placed.Handler(charge),
//		cancelled.Type: cancelled.Handler(refund),
//	}, eventbus.DiscardUnknown))
//
// ByType copies handlers, and panics if one of them is nil.
func ByType[H Handler | ManualHandler | BatchHandler](handlers map[string]H, fallback H) H {
	for name, h := range handlers {
		if reflect.ValueOf(h).IsNil() {
			panic(fmt.Sprintf("eventbus: ByType: the handler of %q is nil", name))
		}
	}
	var h any
	switch all := any(maps.Clone(handlers)).(type) {
	case map[string]Handler:
		h = handlerByType(all, any(fallback).(Handler))
	case map[string]ManualHandler:
		h = manualByType(all, any(fallback).(ManualHandler))
	case map[string]BatchHandler:
		h = batchByType(all, any(fallback).(BatchHandler))
	}
	return h.(H) //nolint:forcetypeassert // it is of the kind of handlers
}

func handlerByType(handlers map[string]Handler, fallback Handler) Handler {
	return func(ctx context.Context, d *Delivery) error {
		switch h := handlers[d.Type]; {
		case h != nil:
			return h(ctx, d)
		case fallback != nil:
			return fallback(ctx, d)
		}
		return errNoHandler(d)
	}
}

func manualByType(handlers map[string]ManualHandler, fallback ManualHandler) ManualHandler {
	return func(ctx context.Context, d *ManualDelivery) error {
		switch h := handlers[d.Type]; {
		case h != nil:
			return h(ctx, d)
		case fallback != nil:
			return fallback(ctx, d)
		}
		return errNoHandler(d.Delivery)
	}
}

func batchByType(handlers map[string]BatchHandler, fallback BatchHandler) BatchHandler {
	type entry struct {
		name  string
		known bool
	}
	return func(ctx context.Context, ds []*Delivery) []error {
		var entries []entry
		places := map[entry][]int{}
		for i, d := range ds {
			e := entry{d.Type, true}
			if handlers[d.Type] == nil {
				e = entry{}
			}
			if places[e] == nil {
				entries = append(entries, e)
			}
			places[e] = append(places[e], i)
		}
		errs := make([]error, len(ds))
		for _, e := range entries {
			h := fallback
			if e.known {
				h = handlers[e.name]
			}
			some := make([]*Delivery, len(places[e]))
			for j, i := range places[e] {
				some[j], errs[i] = ds[i], errNoHandler(ds[i])
			}
			if h == nil {
				continue
			}
			for j, err := range results(len(some), func() []error { return h(ctx, some) }) {
				errs[places[e][j]] = err
			}
		}
		return errs
	}
}

func errNoHandler(d *Delivery) error {
	return Permanent(engine.Named(ReasonUnknownType, fmt.Errorf("eventbus: no handler for events of type %q", d.Type)))
}
