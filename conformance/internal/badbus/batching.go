package badbus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus"
)

// batching has the saboteurs that break the promises of batches.
var batching = []Saboteur{
	{
		Name: "bus-fails-batches", Breaks: "a batch succeeds or fails as a whole",
		batch: func(_ eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler {
			return func(ctx context.Context, ds []*eventbus.Delivery) []error {
				if err := errors.Join(next(ctx, ds)...); err != nil {
					return slices.Repeat([]error{err}, len(ds))
				}
				return nil
			}
		},
	},
	{
		Name: "bus-buries-batches", Breaks: "an event goes to the dead-letter topic with its batch",
		batch: func(_ eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler {
			return func(ctx context.Context, ds []*eventbus.Delivery) (errs []error) {
				defer func() {
					if v := recover(); v != nil {
						errs = slices.Repeat([]error{eventbus.Permanent(errors.New("panic"))}, len(ds))
					}
				}()
				return next(ctx, ds)
			}
		},
	},
	{
		Name: "bus-waits-for-batches", Breaks: "a batch waits until it is full",
		bounds: func(b *eventbus.Batch) { b.MaxWait = time.Hour },
	},
	{
		Name: "bus-drops-batches", Breaks: "a batch that is not full is acknowledged",
		batch: func(b eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler {
			return func(ctx context.Context, ds []*eventbus.Delivery) []error {
				if full, err := b.Effective(); err != nil || len(ds) < full.MaxSize {
					return nil
				}
				return next(ctx, ds)
			}
		},
	},
	{
		Name: "bus-hides-batch-contexts", Breaks: "a call takes its time",
		batch: func(_ eventbus.Batch, next eventbus.BatchHandler) eventbus.BatchHandler {
			return func(ctx context.Context, ds []*eventbus.Delivery) []error {
				return next(context.WithoutCancel(ctx), ds)
			}
		},
	},
	{
		Name: "bus-overfills-batches", Breaks: "bounds of a batch are a hint",
		bounds: func(b *eventbus.Batch) { b.MaxSize, b.MaxBytes = 2*b.MaxSize, 0 },
	},
}
