package eventbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/internal/engine"
)

// A Handler handles one event. If it returns nil, the event is acknowledged. If it returns an
// error, the event is delivered again as SubscribeOptions.Retry says, unless the error comes from
// [Permanent], [RetryAfter], [Snooze] or [Drop]. A panic counts as an error.
//
// ctx carries the values of the context given to Subscribe. It ends when the handler returns,
// when SubscribeOptions.Timeout has passed (cause *observer.TimeoutError), when the lease is lost
// (cause ErrLeaseLost), or when the context of a Drain or Shutdown ends (cause ErrShutdown).
//
// With SubscribeOptions.Concurrency above 1, the handler runs on several goroutines at the same
// time. [PerWorker] gives each of them a Handler of its own.
type Handler func(ctx context.Context, d *Delivery) error

// A Delivery is an event as a member of a group receives it. It is plain data, so a test can make
// one. A handler may keep a Delivery and change its fields. It may also keep the bytes of
// Payload, but must not overwrite them, because a dead letter would carry the changed bytes.
type Delivery struct {
	Event
	Topic, Group string
	Attempt      int  // the number of this attempt, from 1; if the backend does not count deliveries, it counts only the failures in this member
	MaxAttempts  int  // the last attempt: if it fails, the event has failed for good; Retry.Rules may set another limit for some errors; 0: no limit
	Redelivered  bool // a member of the group has received the event before, as far as the broker remembers; this includes retries and redriven events
	Partition    int  // the partition of the event, if its topic has partitions (TopicOptions.Partitions)

	// Epoch grows whenever the partition changes its owner. Use it as a fencing token: a store
	// that refuses a write with a smaller Epoch than it has seen for the Partition refuses a
	// member that was frozen while another one took over. It is 0 without partitions, and with
	// EachInstance.
	Epoch int

	Manual bool // the handler is a [ManualHandler], so a middleware must not take a nil result for success

	run *engine.Run     // set for a ManualHandler
	ctx context.Context // the context of the event, set for a BatchHandler
}

// Context returns the context of an event that a [BatchHandler] has received, with the values
// that Options.Middleware has added for this event. It ends when the run of the event ends, like
// the ctx of a [Handler].
//
// A Handler gets its context as a parameter instead: for its deliveries, and for those that the
// bus has not made, Context returns [context.Background].
func (d *Delivery) Context() context.Context {
	if d.ctx == nil {
		return context.Background() //nolint:forbidigo // it has no run
	}
	return d.ctx
}

// LastAttempt reports whether the event fails for good if this attempt fails. It does not
// consider Retry.Rules, which may set another limit for some errors.
func (d *Delivery) LastAttempt() bool { return d.MaxAttempts > 0 && d.Attempt >= d.MaxAttempts }

// A Middleware wraps a [Handler], for example to measure it or to change its context. Set
// Options.Middleware to apply it to every handler of a bus.
type Middleware func(Handler) Handler

// Tag attaches tag to the run of a handler. The observer gets it with every later callback about
// the run, in About.Tag, and about the settlement of its event, in Settled.Tags. A middleware
// uses it to hand its trace span to an observer. ctx must be the context of the handler or derive
// from it; otherwise Tag does nothing. A tag replaces the previous tag of the run.
func Tag(ctx context.Context, tag any) { engine.Tag(ctx, tag) }

// A ManualHandler receives an event that the program settles later, from any goroutine. If it
// returns nil, the event stays in flight. If it returns an error, the event is settled as by
// [ManualDelivery.Nack].
type ManualHandler func(ctx context.Context, d *ManualDelivery) error

// A ManualDelivery is an event in flight, until the program settles it with Ack or Nack. Until
// then the bus extends the lease of the event and counts it toward MaxInFlight, and later events
// of its key wait, as does a drain.
//
// SubscribeOptions.Timeout starts with the call of the handler. If it passes before the event is
// settled, the context of the event ends and the event counts as failed. The methods are safe for
// concurrent use.
type ManualDelivery struct {
	*Delivery
	run *engine.Run
}

// Context returns the context of the event, which ends when the event is settled. It does not
// have the values that a middleware has added to the context of the handler.
func (d *ManualDelivery) Context() context.Context { return d.run.Context() }

// Ack settles the event as handled, and returns when the broker has confirmed that. A second
// settlement returns ErrSettled. A settlement after the timeout, or after the lease was lost,
// returns ErrLeaseLost. If ctx ends first, the error matches ErrUnknownOutcome, and the bus keeps
// trying.
func (d *ManualDelivery) Ack(ctx context.Context) error { return d.run.Ack(ctx) }

// Nack settles the event as failed, as if a [Handler] had returned cause. A nil cause is a
// failure too. Nack returns when the event is given back, dead-lettered or discarded, with the
// same errors as Ack.
func (d *ManualDelivery) Nack(ctx context.Context, cause error) error { return d.run.Nack(ctx, cause) }

// errNewDelivery fails an event that its ManualHandler could not settle.
var errNewDelivery = errors.New("eventbus: a middleware passed on a Delivery of its own; a ManualHandler needs the one from the bus, or a copy of it")

// PerWorker gives each concurrent run of a subscription a handler of its own, made by fresh. Use
// it for handlers with state, such as a buffer, a parser or a connection: a handler made by fresh
// is never called while it is still running, so its state needs no lock. Whatever fresh itself
// captures is shared by all handlers:
//
//	bus.Subscribe(ctx, "pages", o, eventbus.PerWorker(func() eventbus.Handler {
//		var buffer bytes.Buffer // belongs to one handler
//		return func(ctx context.Context, d *eventbus.Delivery) error {
//			buffer.Reset()
//			return render(ctx, &buffer, templates, d) // templates are shared
//		}
//	}))
//
// PerWorker calls fresh once right away, and panics if it returns nil. It calls fresh again when
// an event arrives while all handlers are busy. A subscription therefore has at most
// SubscribeOptions.MaxConcurrency handlers, plus one for each run that is stuck beyond its
// timeout. Calls of fresh do not overlap. If a later call panics or returns nil, the run fails
// with an *observer.PanicError.
//
// Handlers are kept, even after [Subscription.SetConcurrency] has lowered their number. A handler
// that panics or ends its goroutine is not called again, because its state may be broken. The bus
// does not close handlers: if fresh opens connections, keep a list of them and close them after
// [Subscription.Drain] or [Bus.Shutdown].
//
// All handlers share Options.Middleware, which wraps the handler that PerWorker returns. For a
// [ManualHandler], a call ends when the handler returns, before its event is settled.
func PerWorker[H Handler | ManualHandler | BatchHandler](fresh func() H) H {
	p := &handlerPool[H]{fresh: fresh}
	p.put(p.newHandler())
	var h any
	switch p := any(p).(type) {
	case *handlerPool[Handler]:
		h = Handler(func(ctx context.Context, d *Delivery) error {
			h := p.get()
			err := h(ctx, d)
			p.put(h)
			return err
		})
	case *handlerPool[ManualHandler]:
		h = ManualHandler(func(ctx context.Context, d *ManualDelivery) error {
			h := p.get()
			err := h(ctx, d)
			p.put(h)
			return err
		})
	case *handlerPool[BatchHandler]:
		h = BatchHandler(func(ctx context.Context, ds []*Delivery) []error {
			h := p.get()
			errs := h(ctx, ds)
			p.put(h)
			return errs
		})
	}
	return h.(H) //nolint:forcetypeassert // it is of the kind of fresh
}

// A handlerPool holds the handlers of a PerWorker that are not running. A handler that panics or
// ends its goroutine is not put back.
type handlerPool[H Handler | ManualHandler | BatchHandler] struct {
	making sync.Mutex // held while fresh runs
	fresh  func() H

	mu   sync.Mutex
	free []H // used last in, first out
}

func (p *handlerPool[H]) get() H {
	p.mu.Lock()
	if last := len(p.free) - 1; last >= 0 {
		defer p.mu.Unlock()
		h := p.free[last]
		p.free[last], p.free = nil, p.free[:last]
		return h
	}
	p.mu.Unlock()
	return p.newHandler()
}

func (p *handlerPool[H]) put(h H) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, h)
}

func (p *handlerPool[H]) newHandler() H {
	p.making.Lock()
	defer p.making.Unlock()
	h := p.fresh()
	if h == nil {
		panic("eventbus: PerWorker: fresh returned nil")
	}
	return h
}

// ByType returns a handler that dispatches events by Type, so that one subscription can handle
// several types in one group. Each event goes to the entry of handlers for its Type, or to
// fallback if there is none. If fallback is nil, such an event is a [Permanent] failure:
//
//	bus.Subscribe(ctx, placed.Name, o, eventbus.ByType(map[string]eventbus.Handler{
//		placed.Type:    placed.Handler(charge),
//		cancelled.Type: cancelled.Handler(refund),
//	}, eventbus.DiscardUnknown))
//
// With a [BatchHandler], each entry gets the events of its Type that are in the batch, one entry
// after another. ByType copies the map, and panics if one of its handlers is nil.
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
		indexes := map[entry][]int{}
		for i, d := range ds {
			e := entry{d.Type, true}
			if handlers[d.Type] == nil {
				e = entry{}
			}
			if indexes[e] == nil {
				entries = append(entries, e)
			}
			indexes[e] = append(indexes[e], i)
		}
		errs := make([]error, len(ds))
		for _, e := range entries {
			h := fallback
			if e.known {
				h = handlers[e.name]
			}
			some := make([]*Delivery, len(indexes[e]))
			for j, i := range indexes[e] {
				some[j], errs[i] = ds[i], errNoHandler(ds[i])
			}
			if h == nil {
				continue
			}
			for j, err := range batchResults(len(some), func() []error { return h(ctx, some) }) {
				errs[indexes[e][j]] = err
			}
		}
		return errs
	}
}

func errNoHandler(d *Delivery) error {
	return Permanent(engine.Named(ReasonUnknownType, fmt.Errorf("eventbus: no handler for events of type %q", d.Type)))
}

// wrap returns h wrapped in o.Middleware, the first outermost.
func (o Options) wrap(h Handler) (Handler, error) {
	for i, m := range slices.Backward(o.Middleware) {
		if h = m(h); h == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.Middleware[%d]", i), Reason: "returned nil"}
		}
	}
	return h, nil
}

// delivery returns the Delivery for an event that the engine holds, without MaxAttempts.
func delivery(group string, h *engine.Hold) *Delivery {
	m := &h.Delivery
	d := &Delivery{Group: group, Attempt: h.Attempt, Redelivered: h.Redelivered()}
	d.Topic, d.Partition, d.Epoch = engine.Origin(h)
	d.decode(&m.Message)
	return d
}

// expired returns an error if the TTL of d has passed, which makes the event a dead letter if
// bury is set, and discards it otherwise.
func (d *Delivery) expired(bury bool) error {
	if end := d.Time.Add(d.TTL); d.TTL > 0 && !d.Time.IsZero() && time.Now().After(end) {
		return engine.Expired(end, bury)
	}
	return nil
}
