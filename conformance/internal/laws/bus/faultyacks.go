package bus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// denyingAcks is a backend whose Ack fails while broken is true.
type denyingAcks struct {
	backend.Backend
	broken    atomic.Bool
	confirmed atomic.Int64 // acknowledged messages
}

func (d *denyingAcks) Unwrap() backend.Backend { return d.Backend }

func (d *denyingAcks) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := d.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &denyingSource{src, d}, nil
}

type denyingSource struct {
	backend.Source
	all *denyingAcks
}

func (d *denyingSource) Unwrap() backend.Source { return d.Source }

func (d *denyingSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if d.all.broken.Load() {
		return backend.ErrDenied
	}
	err := d.Source.Ack(ctx, ds)
	for i := range ds {
		if backend.ErrorAt(err, i) == nil {
			d.all.confirmed.Add(1)
		}
	}
	return err
}

// holdingAcks is a backend whose Ack of one event waits until release is closed. Its Extend
// always fails, so leases expire, and the bus learns nothing from it.
type holdingAcks struct {
	backend.Backend
	id      string
	release chan struct{} // closed by the test
	again   chan struct{} // closed when the event is received a second time
	acked   chan struct{} // closed when the Ack has returned without an error

	receipts     atomic.Int64
	atLast, done sync.Once
}

func (h *holdingAcks) Unwrap() backend.Backend { return h.Backend }

func (h *holdingAcks) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := h.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &holdingSource{src, h}, nil
}

type holdingSource struct {
	backend.Source
	way *holdingAcks
}

func (s *holdingSource) Unwrap() backend.Source { return s.Source }

func (s *holdingSource) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, max, maxBytes)
	for _, d := range ds {
		if d.ID == s.way.id && s.way.receipts.Add(1) > 1 {
			s.way.atLast.Do(func() { close(s.way.again) })
		}
	}
	return ds, err
}

func (s *holdingSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	held := slices.ContainsFunc(ds, func(d *backend.Delivery) bool { return d.ID == s.way.id })
	if held {
		select {
		case <-s.way.release:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
		}
	}
	err := s.Source.Ack(context.WithoutCancel(ctx), ds)
	if held && err == nil {
		s.way.done.Do(func() { close(s.way.acked) })
	}
	return err
}

func (*holdingSource) Extend(context.Context, []*backend.Delivery) error {
	return backend.ErrUnavailable
}
