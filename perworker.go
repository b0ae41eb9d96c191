package eventbus

import (
	"context"
	"sync"
)

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
