package eventbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/internal/each"
	"github.com/seed41896749/eventbus/internal/engine"
)

// A member is a member of a group that is about to be added.
type member struct {
	topic string
	o     SubscribeOptions
	mode  engine.Mode
	h     Handler      // of single events
	batch Batch        // valid if calls is set
	calls BatchHandler // nil: h handles single events
}

// config sets the defaults of m, and returns its configuration without a handler.
func (m *member) config(b *Bus) (c engine.Config, err error) {
	topics, err := m.o.topics(m.topic)
	if err != nil {
		return c, err
	}
	setDefault(&m.o.Timeout, b.options.Timeout)
	o, err := m.o.Effective(m.topic)
	if err == nil {
		err = o.Retry.checkRules(b.options.ErrorClasses)
	}
	if err != nil {
		return c, err
	}
	n, err := b.options.partitionsOf(topics, o)
	if err != nil {
		return c, err
	}
	ephemeral := o.Group == EachInstance
	if ephemeral {
		o.Group = each.New()
	}
	m.o = o
	c = o.config(topics, m.mode, b.options.ErrorClasses, b.engine.Guard)
	c.Ephemeral, c.Options = ephemeral, o
	if n > 0 {
		c.Divide(n)
	}
	return c, nil
}

// addTo adds m to its group. Options.Middleware wraps its handler.
func (m member) addTo(ctx context.Context, b *Bus) (*Subscription, error) {
	c, err := m.config(b)
	if err != nil {
		return nil, err
	}
	o := m.o
	if m.calls != nil {
		c.Batch, err = b.options.batches(m)
	} else {
		c.Handle, err = b.options.singles(m)
	}
	if err != nil {
		return nil, err
	}
	s, err := b.engine.Subscribe(ctx, c)
	if errors.Is(err, engine.ErrNeedsExtender) {
		return nil, &FieldError{
			Field: "SubscribeOptions.Timeout", Err: errors.ErrUnsupported,
			Reason: fmt.Sprintf("with Batch.MaxWait must be less than Lease, %v: %v", o.Lease, engine.ErrNeedsExtender),
		}
	}
	if errors.Is(err, engine.ErrNeedsAdmin) {
		return nil, &FieldError{Field: m.o.topicField(), Reason: "has a pattern, but the backend cannot list topics", Err: errors.ErrUnsupported}
	}
	if err != nil {
		return nil, &Error{Op: "subscribe", Topic: c.Topic, Group: o.Group, Err: err}
	}
	return &Subscription{s: s}, nil
}

// singles returns the handler of single events for the engine.
func (o Options) singles(m member) (func(context.Context, *engine.Run) error, error) {
	h, err := o.wrap(func(ctx context.Context, d *Delivery) error {
		if err := d.expired(m.o.DeadLetterExpired); err != nil { // while middleware waited
			return err
		}
		return m.h(ctx, d)
	})
	return func(ctx context.Context, run *engine.Run) error {
		d, err := m.deliver(run)
		if err != nil {
			return err
		}
		return h(ctx, d)
	}, err
}

// deliver returns the Delivery of a run, or an error if the event has expired.
func (m *member) deliver(run *engine.Run) (*Delivery, error) {
	d := delivery(m.o.Group, run.Hold())
	if d.Manual = m.mode == engine.Manual; d.Manual {
		d.run = run
	}
	if d.TTL > 0 {
		if at := expiry(&run.Delivery().Message); time.Now().After(at) {
			return nil, engine.Expired(at, m.o.DeadLetterExpired)
		}
	}
	d.MaxAttempts = m.attempts(d)
	return d, nil
}

// attempts returns the MaxAttempts of d.
func (m *member) attempts(d *Delivery) int {
	switch {
	case m.mode == engine.OnReceive:
		return 1
	case d.Retry != nil && d.Retry.MaxAttempts != 0:
		return max(d.Retry.MaxAttempts, 0)
	}
	return max(m.o.Retry.MaxAttempts, 0)
}
