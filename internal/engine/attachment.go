package engine

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
)

// An attachment is a backend.Source with its optional interfaces. If the broker loses the
// group, the subscription attaches again and so gets a new attachment. A panic of the driver
// becomes an error of the call.
type attachment struct {
	source   backend.Source
	delayer  backend.Delayer  // nil if the source cannot Delay
	extender backend.Extender // nil if the source cannot Extend
	refunds  bool             // Delay can give back an event without counting an attempt
}

func (a *attachment) receive(ctx context.Context, n int) (ds []backend.Delivery, err error) {
	defer recovered(&err)
	return a.source.Receive(ctx, n)
}

func (a *attachment) ack(ctx context.Context, ds []*backend.Delivery) error {
	return guarded(func() error { return a.source.Ack(ctx, ds) })
}

func (a *attachment) delay(ctx context.Context, ds []backend.Delayed) error {
	if a.delayer == nil {
		return errors.ErrUnsupported
	}
	return guarded(func() error { return a.delayer.Delay(ctx, ds) })
}

func (a *attachment) extend(ctx context.Context, ds []*backend.Delivery) error {
	return guarded(func() error { return a.extender.Extend(ctx, ds) })
}

func (a *attachment) close() error {
	return guarded(a.source.Close)
}

// guarded calls f and returns its error, or a PanicError if f panics.
func guarded(f func() error) (err error) {
	defer recovered(&err)
	return f()
}
