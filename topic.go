package eventbus

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/codec"
)

// A Topic is a topic whose events carry values of type T.
type Topic[T any] struct {
	Name  string         // the name of the topic
	Type  string         // the Event.Type; if set, events of other types are dead-lettered
	Key   func(T) string // returns the Event.Key of a value; nil: events have no key
	Codec codec.Codec    // encodes and decodes the values; nil: codec.JSON
}

func (t Topic[T]) codec() codec.Codec {
	if t.Codec == nil {
		return codec.JSON{}
	}
	return t.Codec
}

// Event returns an event that carries v: it has Type, Key, ContentType and Payload.
func (t Topic[T]) Event(v T) (*Event, error) {
	c := t.codec()
	data, err := c.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("eventbus: encode for %s: %w", t.Name, err)
	}
	e := &Event{Type: t.Type, ContentType: c.ContentType(), Payload: data}
	if t.Key != nil {
		e.Key = t.Key(v)
	}
	return e, nil
}

// Publish encodes vs as events of topic t, and publishes them in one call of p.Publish. If
// one of the values cannot be encoded, no event is stored.
func (t Topic[T]) Publish(ctx context.Context, p Publisher, vs ...T) error {
	events := make([]*Event, len(vs))
	for i, v := range vs {
		e, err := t.Event(v)
		if err != nil {
			return err
		}
		events[i] = e
	}
	return p.Publish(ctx, t.Name, events...)
}

// Handler returns a handler that decodes the value of each event and calls h with it. An
// event that cannot be decoded, or has another Type, is a [Permanent] failure: it goes to
// the dead-letter topic unchanged. If h is nil Handler returns nil, which Subscribe
// refuses.
func (t Topic[T]) Handler(h func(ctx context.Context, v T, d *Delivery) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, d *Delivery) error {
		v, err := t.Decode(&d.Event)
		if err != nil {
			return Permanent(err)
		}
		return h(ctx, v, d)
	}
}

// ManualHandler is like [Topic.Handler], but returns a handler for SubscribeManual.
func (t Topic[T]) ManualHandler(h func(ctx context.Context, v T, d *ManualDelivery) error) ManualHandler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, d *ManualDelivery) error {
		v, err := t.Decode(&d.Event)
		if err != nil {
			return Permanent(err)
		}
		return h(ctx, v, d)
	}
}

// BatchHandler is like [Topic.Handler], but returns a handler for SubscribeBatch. h gets
// the values that can be decoded, with their deliveries, and returns a result for each of
// them. If no value can be decoded h is not called. A panic of h is the result of the values
// that it got.
func (t Topic[T]) BatchHandler(h func(ctx context.Context, vs []T, ds []*Delivery) []error) BatchHandler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, ds []*Delivery) []error {
		errs := make([]error, len(ds))
		vs, read := make([]T, 0, len(ds)), make([]*Delivery, 0, len(ds))
		for i, d := range ds {
			v, err := t.Decode(&d.Event)
			if err != nil {
				errs[i] = Permanent(err)
				continue
			}
			vs, read = append(vs, v), append(read, d)
		}
		if len(vs) == 0 {
			return errs
		}
		results := results(len(vs), func() []error { return h(ctx, vs, read) })
		for i := range errs {
			if errs[i] == nil {
				errs[i], results = results[0], results[1:]
			}
		}
		return errs
	}
}

// Decode returns the value that e carries. It fails if the payload cannot be decoded, or
// if e has another Type or a ContentType that the codec does not read: see [codec.Decode].
func (t Topic[T]) Decode(e *Event) (v T, err error) {
	if t.Type != "" && e.Type != t.Type {
		return v, fmt.Errorf("eventbus: event of type %q in %s, want %q", e.Type, t.Name, t.Type)
	}
	if err := codec.Decode(t.codec(), e.ContentType, e.Payload, &v); err != nil {
		return v, fmt.Errorf("eventbus: decode from %s: %w", t.Name, err)
	}
	return v, nil
}
