package eventbus

import (
	"context"

	"github.com/seed41896749/eventbus/internal/engine"
)

// A Handler handles one event. Nil acknowledges it. An error brings it back, as
// SubscribeOptions.Retry says, unless it is made by [Permanent], [RetryAfter],
// [Snooze] or [Drop]. A panic is an error.
//
// ctx carries the values of the context given to Subscribe. It ends when
// SubscribeOptions.Timeout has passed (cause *TimeoutError), when the lease is
// lost (cause ErrLeaseLost), when a drain runs out of patience (cause
// ErrShutdown), and when the handler has returned.
type Handler func(ctx context.Context, d *Delivery) error

// A Middleware wraps a [Handler].
type Middleware func(Handler) Handler

// delivery makes the Delivery of a Hold.
func delivery(h *engine.Hold) *Delivery {
	m := h.Delivery()
	d := &Delivery{Topic: m.Topic, Group: h.Subscription().Group, Attempt: h.Attempt()}
	d.decode(&m.Message)
	return d
}
