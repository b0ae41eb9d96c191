package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// The laws of the bus put the backends in this file between the bus and the backend under
// test. These backends have faults of real brokers, which the bus must tolerate. They
// are not the faults of package faults, with which a law must fail.

// unsettling is a backend whose Extend fails while broken is true. If acks is true, its Ack
// fails too.
type unsettling struct {
	backend.Backend
	broken *atomic.Bool
	acks   bool
}

func (u *unsettling) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := u.Backend.Attach(ctx, c)
	if err != nil {
		return nil, err
	}
	return &unsettlingSource{Source: src, way: u}, nil
}

func (u *unsettling) Unwrap() backend.Backend { return u.Backend }

type unsettlingSource struct {
	backend.Source
	way *unsettling
}

func (u *unsettlingSource) Unwrap() backend.Source { return u.Source }

func (u *unsettlingSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	if u.way.acks && u.way.broken.Load() {
		return backend.ErrUnavailable
	}
	return u.Source.Ack(ctx, ds)
}

func (u *unsettlingSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	v, ok := backend.As[backend.Extender](u.Source)
	if !ok || u.way.broken.Load() {
		return backend.ErrUnavailable
	}
	return v.Extend(ctx, ds)
}

// freezing is a backend whose first source delays the return of its first deliveries until
// the test closes thaw. The field lease replaces the lease that the bus asks for.
type freezing struct {
	backend.Backend
	lease time.Duration
	once  sync.Once
	read  chan struct{} // closed when the first deliveries are read
	thaw  chan struct{} // closed by the test
}

func (f *freezing) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	c.Lease = f.lease
	src, err := f.Backend.Attach(ctx, c)
	if err == nil {
		f.once.Do(func() { src = &frozenSource{Source: src, way: f} })
	}
	return src, err
}

func (f *freezing) Unwrap() backend.Backend { return f.Backend }

type frozenSource struct {
	backend.Source
	way  *freezing
	once sync.Once
}

func (s *frozenSource) Unwrap() backend.Source { return s.Source }

func (s *frozenSource) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := s.Source.Receive(ctx, max, maxBytes)
	if len(ds) > 0 {
		s.once.Do(func() {
			close(s.way.read)
			<-s.way.thaw
		})
	}
	return ds, err
}

// flaky is a backend on which every n-th Publish fails with ErrUnavailable. n is the field
// every.
type flaky struct {
	backend.Backend
	every int64
	calls atomic.Int64
}

func (f *flaky) Publish(ctx context.Context, msgs []*backend.Message) error {
	if f.calls.Add(1)%f.every == 0 {
		return fmt.Errorf("flaky: %w", backend.ErrUnavailable)
	}
	return f.Backend.Publish(ctx, msgs)
}

func (f *flaky) Unwrap() backend.Backend { return f.Backend }

// refusing is a backend that stores a message only if the function refuse returns nil for
// the message.
type refusing struct {
	backend.Backend
	refuse func(*backend.Message) error
}

func (r *refusing) Publish(ctx context.Context, msgs []*backend.Message) error {
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if errs[i] = r.refuse(m); errs[i] == nil {
			errs[i] = backend.ErrorAt(r.Backend.Publish(ctx, []*backend.Message{m}), 0)
		}
	}
	return backend.AsBatchError(errs)
}

func (r *refusing) Unwrap() backend.Backend { return r.Backend }

// stalling is a backend whose Publish waits until release is closed.
type stalling struct {
	backend.Backend
	once    sync.Once
	release chan struct{}
	started sync.Map // IDs of the messages whose Publish has begun
}

func (s *stalling) Publish(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		s.started.Store(m.ID, true)
	}
	select {
	case <-s.release:
		return s.Backend.Publish(ctx, msgs)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
	}
}

func (s *stalling) Unwrap() backend.Backend { return s.Backend }

// Limits returns the backend's limits without a negative Publishers, which would tell the
// bus that Publish never waits.
func (s *stalling) Limits() backend.Limits {
	l := backend.LimitsOf(s.Backend)
	l.Publishers = max(l.Publishers, 0)
	return l
}

func (s *stalling) end() { s.once.Do(func() { close(s.release) }) }

// waitFor reports whether a Publish with this message has begun, or begins within soon.
func (s *stalling) waitFor(id string, soon time.Duration) bool {
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, ok := s.started.Load(id); ok {
			return true
		}
	}
	return false
}

// oneSlot is a stalling backend that asks the bus for one Publish at a time.
type oneSlot struct{ *stalling }

func (o *oneSlot) Unwrap() backend.Backend { return o.stalling }

func (o *oneSlot) Limits() backend.Limits {
	l := o.stalling.Limits()
	l.Publishers = 1
	return l
}

// garbling is a backend that cannot read the messages with the IDs "unreadable" and "gone".
type garbling struct{ backend.Backend }

func (g *garbling) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	src, err := g.Backend.Attach(ctx, c)
	if err != nil || strings.HasSuffix(c.Topic, ".dlq") {
		return src, err
	}
	return &garblingSource{src}, nil
}

func (g *garbling) Unwrap() backend.Backend { return g.Backend }

type garblingSource struct{ backend.Source }

func (g *garblingSource) Unwrap() backend.Source { return g.Source }

func (g *garblingSource) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	ds, err := g.Source.Receive(ctx, max, maxBytes)
	for i := range ds {
		switch ds[i].ID {
		case "unreadable":
			ds[i].Err = errors.New("garbled")
		case "gone":
			ds[i].Err = fmt.Errorf("garbled: %w", backend.ErrGone)
		default:
			continue
		}
		ds[i].ID, ds[i].Headers = "", nil
	}
	return ds, err
}

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
