package calls

import (
	"cmp"
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/verbs"
)

// A Backend is the backend under test, with its calls in a log. [backend.As] finds optional
// verbs without a log, so laws call them through [VerbsOf].
type Backend struct {
	backend.Backend
	calls *Log
}

// Record returns b with its calls in a log.
func Record(b backend.Backend, log *Log) *Backend { return &Backend{b, log} }

// Unwrap returns the backend, so that [backend.As] finds its optional verbs.
func (r *Backend) Unwrap() backend.Backend { return r.Backend }

// VerbsOf returns the optional verbs of b, a backend whose calls are recorded, with their
// calls in the log.
func VerbsOf(b backend.Backend) verbs.Verbs {
	r := b.(*Backend)
	around := func(ctx context.Context, verb, of string, do func() error) (err error) {
		defer r.calls.record(ctx, verb, of)(&err)
		return do()
	}
	return verbs.Verbs{Of: r.Backend, Around: around}
}

// Publish implements [backend.Backend].
func (r *Backend) Publish(ctx context.Context, msgs []*backend.Message) (err error) {
	c := &Call{verb: "Publish", items: len(msgs)}
	if len(msgs) > 0 {
		c.of, c.first = msgs[0].Topic, msgs[0].ID
	}
	defer r.calls.begin(ctx, c)(&err)
	return r.Backend.Publish(ctx, msgs)
}

// Attach implements [backend.Backend].
func (r *Backend) Attach(ctx context.Context, c backend.Config) (src backend.Source, err error) {
	defer r.calls.record(ctx, "Attach", c.Topic+"/"+c.Group)(&err)
	src, err = r.Backend.Attach(ctx, c)
	if err != nil || src == nil {
		return src, err
	}
	s := &source{Source: src, calls: r.calls, of: c.Topic + "/" + c.Group}
	_, delays := backend.As[backend.Delayer](src)
	_, extends := backend.As[backend.Extender](src)
	switch { // the returned source must have exactly the optional verbs of src
	case delays && extends:
		return struct {
			*source
			delayer
			extender
		}{s, delayer{s}, extender{s}}, nil
	case delays:
		return struct {
			*source
			delayer
		}{s, delayer{s}}, nil
	case extends:
		return struct {
			*source
			extender
		}{s, extender{s}}, nil
	}
	return s, nil
}

// Close implements [backend.Backend].
func (r *Backend) Close() (err error) {
	defer r.calls.record(nil, "Close", "the backend")(&err) //nolint:staticcheck // Close has no context
	return r.Backend.Close()
}

// A source is a source of the backend under test, with its calls in the log.
type source struct {
	backend.Source
	calls *Log
	of    string
}

func (s *source) Unwrap() backend.Source { return s.Source }

// Receive sleeps for a millisecond if the source returned nothing without waiting.
// Otherwise a source that never waits would keep a fake clock from moving on.
func (s *source) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	c := &Call{verb: "Receive", of: s.of, items: max}
	end := s.calls.begin(ctx, c)
	ds, err := s.Source.Receive(ctx, max, maxBytes)
	end(&err)
	if len(ds) == 0 && err == nil && c.Took < time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	return ds, err
}

func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer s.settle(ctx, "Ack", ds)(&err)
	return s.Source.Ack(ctx, ds)
}

func (s *source) Close() (err error) {
	defer s.calls.record(nil, "Close", s.of)(&err) //nolint:staticcheck // Close has no context
	return s.Source.Close()
}

func (s *source) settle(ctx context.Context, verb string, ds []*backend.Delivery) (end func(*error)) {
	c := &Call{verb: verb, of: s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	return s.calls.begin(ctx, c)
}

type delayer struct{ s *source }

func (r delayer) Delay(ctx context.Context, ds []backend.Delayed) (err error) {
	c := &Call{verb: "Delay", of: r.s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	defer r.s.calls.begin(ctx, c)(&err)
	v, _ := backend.As[backend.Delayer](r.s.Source)
	return v.Delay(ctx, ds)
}

type extender struct{ s *source }

func (r extender) Extend(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer r.s.settle(ctx, "Extend", ds)(&err)
	v, _ := backend.As[backend.Extender](r.s.Source)
	return v.Extend(ctx, ds)
}
