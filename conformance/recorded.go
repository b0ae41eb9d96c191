package conformance

import (
	"cmp"
	"context"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A recorded backend is the backend under test with its calls in a log. Unwrap leads to
// the optional verbs of the backend; laws call them through verbs.
type recorded struct {
	backend.Backend
	calls *calls
}

// record returns b with its calls in a log.
func record(b backend.Backend, log *calls) *recorded { return &recorded{b, log} }

// Unwrap implements the wrapping of package backend.
func (r *recorded) Unwrap() backend.Backend { return r.Backend }

func (r *recorded) Publish(ctx context.Context, msgs []*backend.Message) (err error) {
	c := &call{verb: "Publish", items: len(msgs)}
	if len(msgs) > 0 {
		c.of, c.first = msgs[0].Topic, msgs[0].ID
	}
	defer r.calls.begin(ctx, c)(&err)
	return r.Backend.Publish(ctx, msgs)
}

func (r *recorded) Attach(ctx context.Context, c backend.Config) (src backend.Source, err error) {
	defer r.calls.record(ctx, "Attach", c.Topic+"/"+c.Group)(&err)
	src, err = r.Backend.Attach(ctx, c)
	if err != nil || src == nil {
		return src, err
	}
	s := &recordedSource{Source: src, calls: r.calls, of: c.Topic + "/" + c.Group}
	_, delays := backend.As[backend.Delayer](src)
	_, extends := backend.As[backend.Extender](src)
	switch { // the recorded source has the verbs of its source, and no other
	case delays && extends:
		return struct {
			*recordedSource
			recordedDelay
			recordedExtend
		}{s, recordedDelay{s}, recordedExtend{s}}, nil
	case delays:
		return struct {
			*recordedSource
			recordedDelay
		}{s, recordedDelay{s}}, nil
	case extends:
		return struct {
			*recordedSource
			recordedExtend
		}{s, recordedExtend{s}}, nil
	}
	return s, nil
}

func (r *recorded) Close() (err error) {
	defer r.calls.record(nil, "Close", "the backend")(&err) //nolint:staticcheck // Close has no context
	return r.Backend.Close()
}

// recordedSource is a source with its calls recorded.
type recordedSource struct {
	backend.Source
	calls *calls
	of    string
}

func (s *recordedSource) Unwrap() backend.Source { return s.Source }

// Receive makes a short pause if the source returned nothing at once. So a source
// that never waits cannot keep a fake clock from moving on.
func (s *recordedSource) Receive(ctx context.Context, max int) ([]backend.Delivery, error) {
	c := &call{verb: "Receive", of: s.of, items: max}
	end := s.calls.begin(ctx, c)
	ds, err := s.Source.Receive(ctx, max)
	end(&err)
	if len(ds) == 0 && err == nil && c.Took < time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	return ds, err
}

func (s *recordedSource) Ack(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer s.settle(ctx, "Ack", ds)(&err)
	return s.Source.Ack(ctx, ds)
}

func (s *recordedSource) Close() (err error) {
	defer s.calls.record(nil, "Close", s.of)(&err) //nolint:staticcheck // Close has no context
	return s.Source.Close()
}

func (s *recordedSource) settle(ctx context.Context, verb string, ds []*backend.Delivery) (end func(*error)) {
	c := &call{verb: verb, of: s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	return s.calls.begin(ctx, c)
}

type recordedDelay struct{ s *recordedSource }

func (r recordedDelay) Delay(ctx context.Context, ds []backend.Delayed) (err error) {
	c := &call{verb: "Delay", of: r.s.of, items: len(ds)}
	if len(ds) > 0 {
		c.first = cmp.Or(ds[0].ID, ds[0].Position)
	}
	defer r.s.calls.begin(ctx, c)(&err)
	v, _ := backend.As[backend.Delayer](r.s.Source)
	return v.Delay(ctx, ds)
}

type recordedExtend struct{ s *recordedSource }

func (r recordedExtend) Extend(ctx context.Context, ds []*backend.Delivery) (err error) {
	defer r.s.settle(ctx, "Extend", ds)(&err)
	v, _ := backend.As[backend.Extender](r.s.Source)
	return v.Extend(ctx, ds)
}
