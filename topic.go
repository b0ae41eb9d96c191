package eventbus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/internal/engine"
)

// A Topic is a topic whose events carry values of type T. Declare one as a variable in a package
// that publishers and handlers share, and use its methods to publish and subscribe.
type Topic[T any] struct {
	Name  string         // the name of the topic
	Type  string         // the Event.Type; if set, handlers of T get no events of other types
	Key   func(T) string // returns the Event.Key of a value; nil: events have no key
	Codec codec.Codec    // encodes and decodes the values; nil: codec.JSON

	// Unknown handles events of other types if Type is set, such as those of a new type that this
	// program does not know yet. [DiscardUnknown] acknowledges them. Default: they are
	// [Permanent] failures, so they go to the dead-letter topic unchanged.
	Unknown Handler
}

// Event returns an event that carries v, with Type, Key, ContentType and Payload set.
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

// Decode returns the value that e carries. It fails if the payload cannot be decoded, if e has
// another Type, or if e has a ContentType that the codec does not read: see [codec.Decode].
func (t Topic[T]) Decode(e *Event) (v T, err error) {
	if t.isUnknown(e) {
		return v, t.errType(e)
	}
	if err := codec.Decode(t.codec(), e.ContentType, e.Payload, &v); err != nil {
		return v, fmt.Errorf("eventbus: decode from %s: %w", t.Name, err)
	}
	return v, nil
}

// Publish encodes vs as events of topic t and publishes them in one call of p.Publish. If one of
// the values cannot be encoded, no event is stored.
func (t Topic[T]) Publish(ctx context.Context, p Publisher, vs ...T) error {
	events, err := t.events(vs)
	if err != nil {
		return err
	}
	return p.Publish(ctx, t.Name, events...)
}

// PublishReceipts is like [Topic.Publish], but calls p.PublishReceipts and returns its receipts.
func (t Topic[T]) PublishReceipts(ctx context.Context, p ReceiptPublisher, vs ...T) ([]Receipt, error) {
	events, err := t.events(vs)
	if err != nil {
		return nil, err
	}
	return p.PublishReceipts(ctx, t.Name, events...)
}

// PublishAt encodes vs as events of topic t and schedules them in one call of s.PublishAt.
func (t Topic[T]) PublishAt(ctx context.Context, s Scheduler, at time.Time, vs ...T) error {
	events, err := t.events(vs)
	if err != nil {
		return err
	}
	return s.PublishAt(ctx, t.Name, at, events...)
}

// PublishIn is like [Topic.PublishAt], but calls s.PublishIn.
func (t Topic[T]) PublishIn(ctx context.Context, s Scheduler, in time.Duration, vs ...T) error {
	events, err := t.events(vs)
	if err != nil {
		return err
	}
	return s.PublishIn(ctx, t.Name, in, events...)
}

// Subscribe makes h a member of the group o.Group, as [Bus.Subscribe] does with [Topic.Handler].
//
// The members of a group share its events, so a member for another type would get events that it
// cannot handle. Therefore all members that methods of a Topic add to a group on one bus must
// have the same T and Type; otherwise Subscribe returns a *FieldError. To handle several types in
// one group, subscribe once with [ByType].
func (t Topic[T]) Subscribe(ctx context.Context, s Subscriber, o SubscribeOptions, h func(ctx context.Context, v T, d *Delivery) error) (*Subscription, error) {
	o.payload = payloadTypeOf(t)
	return s.Subscribe(ctx, t.Name, o, t.Handler(h))
}

// SubscribeManual is like [Topic.Subscribe] with [Topic.ManualHandler].
func (t Topic[T]) SubscribeManual(ctx context.Context, s ManualSubscriber, o SubscribeOptions, h func(ctx context.Context, v T, d *ManualDelivery) error) (*Subscription, error) {
	o.payload = payloadTypeOf(t)
	return s.SubscribeManual(ctx, t.Name, o, t.ManualHandler(h))
}

// SubscribeBatch is like [Topic.Subscribe] with [Topic.BatchHandler].
func (t Topic[T]) SubscribeBatch(ctx context.Context, s BatchSubscriber, o SubscribeOptions, b Batch, h func(ctx context.Context, vs []T, ds []*Delivery) []error) (*Subscription, error) {
	o.payload = payloadTypeOf(t)
	return s.SubscribeBatch(ctx, t.Name, o, b, t.BatchHandler(h))
}

// Handler returns a handler that decodes the value of each event and calls h with it. Use it with
// [ByType]; otherwise call [Topic.Subscribe]. An event of another Type goes to Unknown. An event
// that cannot be decoded is a [Permanent] failure, so it goes to the dead-letter topic unchanged.
// If h is nil, Handler returns nil, which Subscribe refuses.
func (t Topic[T]) Handler(h func(ctx context.Context, v T, d *Delivery) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, d *Delivery) error {
		if t.isUnknown(&d.Event) {
			return t.unknown(ctx, d)
		}
		v, err := t.Decode(&d.Event)
		if err != nil {
			return Permanent(err)
		}
		return h(ctx, v, d)
	}
}

// ManualHandler is like [Topic.Handler], but returns a handler for SubscribeManual. If Unknown
// returns nil, the event is acknowledged.
func (t Topic[T]) ManualHandler(h func(ctx context.Context, v T, d *ManualDelivery) error) ManualHandler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, d *ManualDelivery) error {
		if t.isUnknown(&d.Event) {
			if err := t.unknown(ctx, d.Delivery); err != nil {
				return err
			}
			return d.Ack(ctx)
		}
		v, err := t.Decode(&d.Event)
		if err != nil {
			return Permanent(err)
		}
		return h(ctx, v, d)
	}
}

// BatchHandler is like [Topic.Handler], but returns a handler for SubscribeBatch. h gets the
// values that can be decoded, with their deliveries, and returns a result for each of them. If no
// value can be decoded, h is not called. A panic of h is the result of all values that it got.
// Unknown gets its events one after another, before h is called.
func (t Topic[T]) BatchHandler(h func(ctx context.Context, vs []T, ds []*Delivery) []error) BatchHandler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, ds []*Delivery) []error {
		errs := make([]error, len(ds))
		vs, read, at := make([]T, 0, len(ds)), make([]*Delivery, 0, len(ds)), make([]int, 0, len(ds))
		for i, d := range ds {
			if t.isUnknown(&d.Event) {
				errs[i] = batchResults(1, func() []error { return []error{t.unknown(ctx, d)} })[0]
				continue
			}
			v, err := t.Decode(&d.Event)
			if err != nil {
				errs[i] = Permanent(err)
				continue
			}
			vs, read, at = append(vs, v), append(read, d), append(at, i)
		}
		if len(vs) == 0 {
			return errs
		}
		for i, err := range batchResults(len(vs), func() []error { return h(ctx, vs, read) }) {
			errs[at[i]] = err
		}
		return errs
	}
}

// DiscardUnknown is a [Handler] for Topic.Unknown and for the fallback of [ByType]. It makes the
// bus acknowledge the event and count it as discarded, with ReasonUnknownType.
func DiscardUnknown(_ context.Context, d *Delivery) error {
	return engine.Discard(ReasonUnknownType, fmt.Errorf("eventbus: event of the unknown type %q in %s", d.Type, d.Topic))
}

func (t Topic[T]) codec() codec.Codec {
	if t.Codec == nil {
		return codec.JSON{}
	}
	return t.Codec
}

// events returns the events that carry vs.
func (t Topic[T]) events(vs []T) ([]*Event, error) {
	events := make([]*Event, len(vs))
	for i, v := range vs {
		e, err := t.Event(v)
		if err != nil {
			return nil, err
		}
		events[i] = e
	}
	return events, nil
}

func (t Topic[T]) isUnknown(e *Event) bool { return t.Type != "" && e.Type != t.Type }

// unknown handles an event of another type.
func (t Topic[T]) unknown(ctx context.Context, d *Delivery) error {
	if t.Unknown == nil {
		return Permanent(t.errType(&d.Event))
	}
	return t.Unknown(ctx, d)
}

func (t Topic[T]) errType(e *Event) error {
	return engine.Named(ReasonUnknownType, fmt.Errorf("eventbus: event of type %q in %s, want %q", e.Type, t.Name, t.Type))
}

// A payloadType is what a member handles if a [Topic] has added it to its group.
type payloadType struct {
	value reflect.Type // nil: the member handles any event
	typ   string       // Topic.Type
}

func payloadTypeOf[T any](t Topic[T]) payloadType { return payloadType{reflect.TypeFor[T](), t.Type} }

func (p payloadType) String() string {
	if p.typ == "" {
		return p.value.String()
	}
	return fmt.Sprintf("%v of type %q", p.value, p.typ)
}

// typedMembers are the members that Topics have added to groups of this bus. Its methods are safe
// for concurrent use.
type typedMembers struct {
	mu      sync.Mutex
	members []*typedMember
}

// A typedMember is one of these members.
type typedMember struct {
	topics  topics
	group   string
	payload payloadType
	done    <-chan struct{} // closed when the subscription has ended; nil while it begins
}

// add adds a member, unless its group has a member of another type for a topic that both have.
func (k *typedMembers) add(topics topics, group string, of payloadType) (*typedMember, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members = slices.DeleteFunc(k.members, (*typedMember).ended)
	for _, m := range k.members {
		if m.topics.overlap(topics) && m.group == group && m.payload != of {
			return nil, &FieldError{Field: "SubscribeOptions.Group", Reason: fmt.Sprintf(
				"is %q, whose member on this bus handles %v in %s, not %v: a group shares its events among all members; subscribe once with ByType, or give each type a group",
				group, m.payload, topics, of)}
		}
	}
	m := &typedMember{topics: topics, group: group, payload: of}
	k.members = append(k.members, m)
	return m, nil
}

func (m *typedMember) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// began records that m has become the subscription s. If s is nil, it has failed, and m is
// removed.
func (k *typedMembers) began(m *typedMember, s *Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s != nil {
		m.done = s.Done()
		return
	}
	k.members = slices.DeleteFunc(k.members, func(other *typedMember) bool { return other == m })
}
