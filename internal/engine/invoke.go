package engine

import (
	"runtime/debug"

	"github.com/seed41896749/eventbus/observer"
)

// invoke runs the handler. It is the only place that does. A panic becomes an
// error; a handler that ends its goroutine takes the worker with it, whose
// deferred calls then settle the message (see worker).
func (s *Subscription) invoke(h *Hold) (err error) {
	defer recovered(&err)
	return s.Handle(h.ctx, h)
}

// recovered turns a panic into a PanicError.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &observer.PanicError{Value: v, Stack: debug.Stack()}
	}
}
