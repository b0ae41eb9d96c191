package faults

import (
	"context"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
)

// A store is a backend with a fault. It passes each call of the fault's operations to the
// effect, and all other calls to the store that it wraps.
type store struct {
	faultbroker.Store // the good store
	on                []Op
	effect            effect
}

// call makes the call c, or lets the fault happen. real makes the call of the good store.
func (s *store) call(c *Call, real func(*Call)) error {
	c.Store, c.do = s, real
	if s.on == nil || slices.Contains(s.on, c.Op) {
		s.effect(c)
	} else {
		real(c)
	}
	return c.Err
}

func (s *store) Publish(ctx context.Context, ms []*backend.Message) error {
	own := make([]*backend.Message, len(ms))
	for i, m := range ms {
		o := *m
		own[i] = &o
	}
	topic := ""
	if len(ms) > 0 {
		topic = ms[0].Topic
	}
	err := s.call(&Call{Op: Publish, Ctx: ctx, Topic: topic, Messages: slices.Clone(own)}, func(c *Call) {
		c.Err = s.Store.Publish(c.Ctx, c.Messages)
	})
	for i, m := range ms {
		m.Position, m.Duplicate = own[i].Position, own[i].Duplicate
	}
	return err
}

func (s *store) Attach(ctx context.Context, config backend.Config) (backend.Source, error) {
	c := &Call{Op: Attach, Ctx: ctx, Topic: config.Topic, Group: config.Group, Config: config}
	err := s.call(c, func(c *Call) {
		var next backend.Source
		if next, c.Err = s.Store.Attach(c.Ctx, c.Config); c.Err == nil {
			c.Source = &source{Source: next, store: s, config: c.Config, asked: config}
		}
	})
	if err != nil {
		return nil, err
	}
	return c.Source, nil
}

func (s *store) Close() error {
	return s.call(&Call{Op: Close, Ctx: context.Background()}, func(c *Call) { c.Err = s.Store.Close() }) //nolint:forbidigo // Close has no context
}

func (s *store) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	c := &Call{Op: Read, Ctx: ctx, Topic: topic, Start: from, Max: limit}
	err := s.call(c, func(c *Call) { c.Page, c.Err = s.Store.Read(c.Ctx, c.Topic, c.Start, c.Max) })
	return c.Page, err
}

func (s *store) Remove(ctx context.Context, topic string, positions []string) error {
	return s.call(&Call{Op: Remove, Ctx: ctx, Topic: topic, Positions: slices.Clone(positions)}, func(c *Call) {
		c.Err = s.Store.Remove(c.Ctx, c.Topic, c.Positions)
	})
}

func (s *store) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	c := &Call{Op: Stats, Ctx: ctx, Topic: topic, Group: group}
	err := s.call(c, func(c *Call) { c.Stats, c.Err = s.Store.Stats(c.Ctx, c.Topic, c.Group) })
	return c.Stats, err
}

func (s *store) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	c := &Call{Op: Maintain, Ctx: ctx, Topic: topic, Group: group}
	err := s.call(c, func(c *Call) { c.Wait, c.Err = s.Store.Maintain(c.Ctx, c.Topic, c.Group) })
	return c.Wait, err
}

func (s *store) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	c := &Call{Op: Declare, Ctx: ctx, Topic: topic, Declaration: d}
	err := s.call(c, func(c *Call) { c.Settings, c.Err = s.Store.Declare(c.Ctx, c.Topic, c.Declaration) })
	return c.Settings, err
}

func (s *store) Ping(ctx context.Context) error {
	return s.call(&Call{Op: Ping, Ctx: ctx}, func(c *Call) { c.Err = s.Store.Ping(c.Ctx) })
}

func (s *store) Now(ctx context.Context, topic string) (time.Time, error) {
	c := &Call{Op: Now, Ctx: ctx, Topic: topic}
	err := s.call(c, func(c *Call) { c.Time, c.Err = s.Store.Now(c.Ctx, c.Topic) })
	return c.Time, err
}

func (s *store) Topics(ctx context.Context) ([]string, error) {
	c := &Call{Op: Topics, Ctx: ctx}
	err := s.call(c, func(c *Call) { c.Names, c.Err = s.Store.Topics(c.Ctx) })
	return c.Names, err
}

func (s *store) Groups(ctx context.Context, topic string) ([]string, error) {
	c := &Call{Op: Groups, Ctx: ctx, Topic: topic}
	err := s.call(c, func(c *Call) { c.Names, c.Err = s.Store.Groups(c.Ctx, c.Topic) })
	return c.Names, err
}

func (s *store) DeleteTopic(ctx context.Context, topic string) error {
	return s.call(&Call{Op: DeleteTopic, Ctx: ctx, Topic: topic}, func(c *Call) { c.Err = s.Store.DeleteTopic(c.Ctx, c.Topic) })
}

func (s *store) DeleteGroup(ctx context.Context, topic, group string) error {
	return s.call(&Call{Op: DeleteGroup, Ctx: ctx, Topic: topic, Group: group}, func(c *Call) {
		c.Err = s.Store.DeleteGroup(c.Ctx, c.Topic, c.Group)
	})
}

func (s *store) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return s.call(&Call{Op: ResetGroup, Ctx: ctx, Topic: topic, Group: group, Start: start}, func(c *Call) {
		c.Err = s.Store.ResetGroup(c.Ctx, c.Topic, c.Group, c.Start)
	})
}

func (s *store) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	return s.call(&Call{Op: Pause, Ctx: ctx, Topic: topic, Group: group, Pause: p}, func(c *Call) {
		c.Err = s.Store.Pause(c.Ctx, c.Topic, c.Group, c.Pause)
	})
}

func (s *store) Resume(ctx context.Context, topic, group string) error {
	return s.call(&Call{Op: Resume, Ctx: ctx, Topic: topic, Group: group}, func(c *Call) {
		c.Err = s.Store.Resume(c.Ctx, c.Topic, c.Group)
	})
}

func (s *store) Settle(ctx context.Context, topic, group, position string) (bool, error) {
	c := &Call{Op: Settle, Ctx: ctx, Topic: topic, Group: group, Positions: []string{position}, Settled: []bool{false}}
	err := s.call(c, func(c *Call) {
		c.Settled[0], c.Err = s.Store.Settle(c.Ctx, c.Topic, c.Group, c.Positions[0])
	})
	return c.Settled[0], err
}

func (s *store) Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
	c := &Call{Op: Settled, Ctx: ctx, Topic: topic, Group: group, Positions: positions}
	err := s.call(c, func(c *Call) { c.Settled, c.Err = s.Store.Settled(c.Ctx, c.Topic, c.Group, c.Positions) })
	return c.Settled, err
}

// A source is a member of a store with a fault.
type source struct {
	backend.Source // the good source
	store          *store
	config         backend.Config // as the good store has it
	asked          backend.Config // as the caller asked for it
}

func (s *source) call(c *Call, real func(*Call)) error {
	c.Source, c.Topic, c.Group, c.Config = s, s.asked.Topic, s.asked.Group, s.config
	return s.store.call(c, real)
}

func (s *source) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	c := &Call{Op: Receive, Ctx: ctx, Max: limit, MaxBytes: maxBytes}
	err := s.call(c, func(c *Call) { c.Deliveries, c.Err = s.Source.Receive(c.Ctx, c.Max, c.MaxBytes) })
	return c.Deliveries, err
}

func (s *source) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return s.call(&Call{Op: Ack, Ctx: ctx, Acked: slices.Clone(ds)}, func(c *Call) { c.Err = s.Source.Ack(c.Ctx, c.Acked) })
}

func (s *source) Delay(ctx context.Context, ds []backend.Delayed) error {
	return s.call(&Call{Op: Delay, Ctx: ctx, Delayed: slices.Clone(ds)}, func(c *Call) {
		v, _ := backend.As[backend.Delayer](s.Source)
		c.Err = v.Delay(c.Ctx, c.Delayed)
	})
}

func (s *source) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return s.call(&Call{Op: Extend, Ctx: ctx, Acked: slices.Clone(ds)}, func(c *Call) {
		v, _ := backend.As[backend.Extender](s.Source)
		c.Err = v.Extend(c.Ctx, c.Acked)
	})
}

func (s *source) Close() error {
	return s.call(&Call{Op: Leave, Ctx: context.Background()}, func(c *Call) { c.Err = s.Source.Close() }) //nolint:forbidigo // Close has no context
}
