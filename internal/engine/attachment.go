package engine

import (
	"context"
	"errors"

	"github.com/seed41896749/eventbus/backend"
)

// An attachment is a source and its optional verbs. A subscription gets a new one when its
// group was lost. A panic of the driver in a call becomes an error with an unknown
// outcome.
type attachment struct {
	source   backend.Source
	delayer  backend.Delayer  // nil if it cannot
	extender backend.Extender // nil if it cannot
	refunds  bool             // an event that has not run can be given back for free
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

// guarded calls f. A panic of f becomes an error.
func guarded(f func() error) (err error) {
	defer recovered(&err)
	return f()
}
