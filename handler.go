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

// A Handler handles one event. If it returns nil the event is acknowledged. After an
// error the event is redelivered as SubscribeOptions.Retry says, unless the error is made
// by [Permanent], [RetryAfter], [Snooze] or [Drop]. A panic counts as an error.
//
// ctx carries the values of the context given to Subscribe. It ends when the handler has
// returned, when SubscribeOptions.Timeout has passed (cause *observer.TimeoutError), or
// when the lease is lost (cause ErrLeaseLost). It ends too when the context of a Drain or
// Shutdown has ended (cause ErrShutdown).
//
// With SubscribeOptions.Concurrency above 1 it runs on several goroutines at the same time. With
// [PerWorker] each of them has a Handler of its own.
type Handler func(ctx context.Context, d *Delivery) error

// A Delivery is one receipt of an event by a member of a group. It is plain data, so a
// test can make one. A handler may keep a Delivery and change its fields. It may keep the
// bytes of Payload too, but must not overwrite them, because a dead letter carries the
// same bytes.
type Delivery struct {
	Event
	Topic, Group string
	Attempt      int  // the number of this attempt, from 1; if the backend does not count receipts, it counts only failures in this member
	MaxAttempts  int  // the last attempt: if it fails, the event has failed for good; Retry.Rules may differ for some errors; 0: no limit
	Redelivered  bool // a member of the group received the event before, as far as the broker remembers; true too after a failure, and for a redriven event
	Partition    int  // the partition of the event, if its topic has some (TopicOptions.Partitions)

	// Epoch grows each time that the partition changes its owner. So a store that refuses a write
	// with a smaller Epoch of the same Partition refuses a member that was frozen while
	// another one took over. It is 0 if the topic has no partitions, and with EachInstance.
	Epoch int

	Manual bool // the handler is a [ManualHandler], so a middleware must not take its nil result as success

	run *engine.Run     // the run, for a ManualHandler; nil in other deliveries
	ctx context.Context // of the event, for a BatchHandler; nil in other deliveries
}

// Context returns the context of an event that a [BatchHandler] has got, with the values that
// Options.Middleware has added for this event. It ends when the run of the event ends, like
// the ctx of a [Handler]. A Handler has its ctx as a parameter, so for its deliveries, and
// for deliveries that the bus has not made, Context returns [context.Background].
func (d *Delivery) Context() context.Context {
	if d.ctx == nil {
		return context.Background() //nolint:forbidigo // it has no run
	}
	return d.ctx
}

// LastAttempt reports whether the event fails for good if this attempt fails. It ignores
// Retry.Rules, which may set another limit for some errors.
func (d *Delivery) LastAttempt() bool { return d.MaxAttempts > 0 && d.Attempt >= d.MaxAttempts }

// A Middleware wraps a [Handler].
type Middleware func(Handler) Handler

// Tag attaches tag to the run of a handler. The observer's later hooks about this run, or
// about the settlement of its event, receive the tag in About.Tag or Settled.Tags. So a
// middleware can pass its trace span to an observer. ctx must be the handler's context or
// derive from it; otherwise Tag does nothing. Each tag replaces the previous tag of the
// run.
func Tag(ctx context.Context, tag any) { engine.Tag(ctx, tag) }

// A ManualHandler takes one event that the program settles later, from any goroutine. If
// the handler returns nil, the event stays in flight. If it returns an error, the event is
// settled as by [ManualDelivery.Nack].
type ManualHandler func(ctx context.Context, d *ManualDelivery) error

// A ManualDelivery is an event in flight until the program settles it by Ack or Nack.
// While the event is in flight the bus extends its lease, and counts it for MaxInFlight.
// Later events of its key wait, and so does a drain. SubscribeOptions.Timeout counts from
// the call of the handler. If the event is not settled by then, its context ends and the
// event counts as failed. The methods are safe for concurrent use.
type ManualDelivery struct {
	*Delivery
	run *engine.Run
}

// Context returns the context of the event, which ends when the event is settled. It lacks
// the values that a middleware has added to the context given to the handler.
func (d *ManualDelivery) Context() context.Context { return d.run.Context() }

// Ack settles the event as handled and returns when the broker has confirmed. A second
// settlement returns ErrSettled. A settlement after the timeout, or after the lease was
// lost, returns ErrLeaseLost. If ctx ends first, the error matches ErrUnknownOutcome, and
// the bus goes on trying.
func (d *ManualDelivery) Ack(ctx context.Context) error { return d.run.Ack(ctx) }

// Nack settles the event as failed, as if a [Handler] had returned cause. A nil cause is a
// failure too. Nack returns when the event is given back, dead-lettered or discarded. It
// returns the same errors as Ack.
func (d *ManualDelivery) Nack(ctx context.Context, cause error) error { return d.run.Nack(ctx, cause) }

// errNewDelivery fails an event whose ManualHandler could not settle it.
var errNewDelivery = errors.New("eventbus: a middleware passed on a Delivery of its own; a ManualHandler needs the Delivery of the bus, or a copy of it")

// PerWorker returns a handler of the same kind as the handlers of fresh, whose calls do not share
// state. The calls that run at the same time each have a handler of their own, so no call of one
// handler begins before its earlier call has returned. A handler may therefore keep a buffer, a
// parser or a connection without a lock. The handlers share the variables that fresh captures:
//
//	bus.Subscribe(ctx, "pages", o, eventbus.PerWorker(func() eventbus.Handler {
//		var buffer bytes.Buffer // of one handler
//		return func(ctx context.Context, d *eventbus.Delivery) error {
//			buffer.Reset()
//			return render(ctx, &buffer, templates, d) // templates are shared
//		}
//	}))
//
// PerWorker calls fresh once, and panics if it returns nil. It makes another handler when a call
// begins and all handlers are busy. So a subscription has at most SubscribeOptions.MaxConcurrency
// handlers, and one more for each run that is stuck beyond its timeout. Calls of fresh do not
// overlap. If a later one panics or returns nil, the run fails with an *observer.PanicError.
//
// Handlers are kept, also after a SetConcurrency with fewer. A handler that panics or ends its
// goroutine is not called again, because its state may be broken. The bus closes no handler. If
// fresh opens connections, it can note them in a list, and the program closes them after
// [Subscription.Drain] or [Bus.Shutdown].
//
// Options.Middleware is shared by all handlers, because it wraps the returned one. A call of a
// [ManualHandler] ends when it returns, before its event is settled.
func PerWorker[H Handler | ManualHandler | BatchHandler](fresh func() H) H {
	p := &handlers[H]{fresh: fresh}
	p.put(p.made())
	var h any
	switch p := any(p).(type) {
	case *handlers[Handler]:
		h = Handler(func(ctx context.Context, d *Delivery) error {
			h := p.take()
			err := h(ctx, d)
			p.put(h)
			return err
		})
	case *handlers[ManualHandler]:
		h = ManualHandler(func(ctx context.Context, d *ManualDelivery) error {
			h := p.take()
			err := h(ctx, d)
			p.put(h)
			return err
		})
	case *handlers[BatchHandler]:
		h = BatchHandler(func(ctx context.Context, ds []*Delivery) []error {
			h := p.take()
			errs := h(ctx, ds)
			p.put(h)
			return errs
		})
	}
	return h.(H) //nolint:forcetypeassert // it is of the kind of fresh
}

// handlers are the handlers of a PerWorker that no call has now. A call that panics or ends its
// goroutine does not put its handler back.
type handlers[H Handler | ManualHandler | BatchHandler] struct {
	making sync.Mutex // held by the call of fresh
	fresh  func() H

	mu   sync.Mutex
	free []H // the last one is used next
}

func (p *handlers[H]) take() H {
	p.mu.Lock()
	if last := len(p.free) - 1; last >= 0 {
		defer p.mu.Unlock()
		h := p.free[last]
		p.free[last], p.free = nil, p.free[:last]
		return h
	}
	p.mu.Unlock()
	return p.made()
}

func (p *handlers[H]) put(h H) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, h)
}

// made returns a further handler.
func (p *handlers[H]) made() H {
	p.making.Lock()
	defer p.making.Unlock()
	h := p.fresh()
	if h == nil {
		panic("eventbus: PerWorker: fresh has returned nil")
	}
	return h
}

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

// wrap returns h, wrapped by o.Middleware, the first outermost. A middleware that returns
// nil is an error.
func (o Options) wrap(h Handler) (Handler, error) {
	for i, m := range slices.Backward(o.Middleware) {
		if h = m(h); h == nil {
			return nil, &FieldError{Field: fmt.Sprintf("Options.Middleware[%d]", i), Reason: "has returned nil"}
		}
	}
	return h, nil
}

// delivery returns the Delivery of an event that the engine holds. MaxAttempts is not set.
func delivery(group string, h *engine.Hold) *Delivery {
	m := &h.Delivery
	d := &Delivery{Group: group, Attempt: h.Attempt, Redelivered: h.Redelivered()}
	d.Topic, d.Partition, d.Epoch = engine.Origin(h)
	d.decode(&m.Message)
	return d
}

// expired returns the error for d if its TTL has passed since its Time, or nil. With bury,
// the event becomes a dead letter.
func (d *Delivery) expired(bury bool) error {
	if end := d.Time.Add(d.TTL); d.TTL > 0 && !d.Time.IsZero() && time.Now().After(end) {
		return engine.Expired(end, bury)
	}
	return nil
}
