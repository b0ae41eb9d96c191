package service

import (
	"cmp"
	"context"
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// A Group is a group and its handler. Set exactly one of Handler, Manual and Batch.
type Group struct {
	// Topic is a topic or a pattern. It is empty if Options.Topics is set.
	Topic string

	// Options override the Defaults of the service. Options.Group is by default the name under
	// which you register the group.
	Options eventbus.SubscribeOptions

	Handler eventbus.Handler       // gets single events
	Manual  eventbus.ManualHandler // gets single events, which your program settles
	Batch   eventbus.BatchHandler  // gets several events per call
	Bounds  eventbus.Batch         // says when a batch is full; only with Batch

	// AllowDuplicate lets you register the group even though another registered group has the same
	// group name and shares a topic with it. The two are then members of one group and share its
	// events.
	AllowDuplicate bool
}

// A member is a registered group. The lock of the service guards the fields below it.
type member struct {
	Group
	name    string
	options eventbus.SubscribeOptions // with the defaults of the service

	opening  chan struct{}          // open while a call declares or starts the group; nil if there is none
	sub      *eventbus.Subscription // nil if it has not started
	stopping int                    // calls of Stop that are draining it, or have drained it
}

func newMember(name string, g Group, defaults eventbus.SubscribeOptions) (*member, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, &eventbus.FieldError{Field: "name", Reason: err.Error()}
	}
	handlers := 0
	for _, set := range []bool{g.Handler != nil, g.Manual != nil, g.Batch != nil} {
		if set {
			handlers++
		}
	}
	m := &member{Group: g, name: name, options: inherit(g.Options, defaults)}
	m.options.Group = cmp.Or(m.options.Group, name)
	switch {
	case handlers != 1:
		return nil, m.wrap(&eventbus.FieldError{Field: "service.Group", Reason: fmt.Sprintf("has %d of Handler, Manual and Batch, not one", handlers)})
	case g.Batch == nil && g.Bounds != eventbus.Batch{}:
		return nil, m.wrap(&eventbus.FieldError{Field: "service.Group.Bounds", Reason: "is set, but Batch is nil"})
	}
	return m, nil
}

// wrap returns err with the name of the group.
func (m *member) wrap(err error) error { return fmt.Errorf("service: %s: %w", m.name, err) }

// opened ends a call that declares or starts m. The caller holds the lock of the service.
func (m *member) opened() {
	if m.opening != nil {
		close(m.opening)
		m.opening = nil
	}
}

// shares returns a topic whose events m would share with other, or "" if there is none.
func (m *member) shares(other *member) string {
	if m.options.Group != other.options.Group || m.options.Group == eventbus.EachInstance {
		return ""
	}
	for _, topic := range m.topics() {
		for _, another := range other.topics() {
			if pattern.Overlap(topic, another) {
				return topic
			}
		}
	}
	return ""
}

func (m *member) topics() []string {
	if len(m.options.Topics) > 0 {
		return m.options.Topics
	}
	return []string{m.Topic}
}

// declare creates the topics and the group of m.
func (m *member) declare(ctx context.Context, b Bus) (err error) {
	o := m.options
	if m.Batch != nil {
		if o, err = m.Bounds.Options(o); err != nil {
			return err
		}
	}
	return b.Declare(ctx, m.Topic, o)
}

func (m *member) subscribe(ctx context.Context, b Bus) (*eventbus.Subscription, error) {
	switch {
	case m.Manual != nil:
		return b.SubscribeManual(ctx, m.Topic, m.options, m.Manual)
	case m.Batch != nil:
		return b.SubscribeBatch(ctx, m.Topic, m.options, m.Bounds, m.Batch)
	default:
		return b.Subscribe(ctx, m.Topic, m.options, m.Handler)
	}
}
