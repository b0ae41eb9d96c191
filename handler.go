package eventbus

import (
	"context"

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

// A Middleware wraps a [Handler].
type Middleware func(Handler) Handler

// Tag attaches tag to the run of a handler. The observer's later hooks about this run, or
// about the settlement of its event, receive the tag in About.Tag or Settled.Tags. So a
// middleware can pass its trace span to an observer. ctx must be the handler's context or
// derive from it; otherwise Tag does nothing. Each tag replaces the previous tag of the
// run.
func Tag(ctx context.Context, tag any) { engine.Tag(ctx, tag) }

// delivery returns the Delivery of an event that the engine holds. MaxAttempts is not set.
func delivery(group string, h *engine.Hold) *Delivery {
	m := &h.Delivery
	d := &Delivery{Group: group, Attempt: h.Attempt, Redelivered: h.Redelivered()}
	d.Topic, d.Partition, d.Epoch = engine.Origin(h)
	d.decode(&m.Message)
	return d
}
