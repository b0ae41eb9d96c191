package eventbus

import (
	"context"

	"github.com/seed41896749/eventbus/internal/engine"
)

// A Handler handles one event. If it returns nil the event is acknowledged. After an
// error the event is redelivered as SubscribeOptions.Retry says, unless the error is made
// by [Permanent], [RetryAfter], [Snooze] or [Drop]. A panic counts as an error.
//
// ctx carries the values of the context given to Subscribe. It ends when
// SubscribeOptions.Timeout has passed (cause *observer.TimeoutError), when the lease is lost
// (cause ErrLeaseLost), when the time of a drain is up (cause ErrShutdown), and when the
// handler has returned.
type Handler func(ctx context.Context, d *Delivery) error

// A Middleware wraps a [Handler].
type Middleware func(Handler) Handler

// Tag attaches tag to the run of a handler. Later hooks of the observer about this run or
// the settlement of its event get it, in About.Tag or Settled.Tags. So a middleware can pass
// its trace span to an observer. ctx is the handler's, or derives from it; with another
// context Tag does nothing. The last tag of a run replaces the others.
func Tag(ctx context.Context, tag any) { engine.Tag(ctx, tag) }

// delivery returns the Delivery of an event that the engine holds, without MaxAttempts.
func delivery(h *engine.Hold) *Delivery {
	m := h.Delivery()
	d := &Delivery{Topic: m.Topic, Group: h.Subscription().Group, Attempt: h.Attempt(), Redelivered: h.Redelivered()}
	d.decode(&m.Message)
	return d
}
