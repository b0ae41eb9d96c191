package badbackend

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var starting = []Saboteur{
	{Name: "always-latest", Breaks: "a group sees what comes after it", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Start = backend.StartLatest })
	}},
	{Name: "always-earliest", Breaks: "a group sees everything", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Start = backend.StartEarliest })
	}},
	{Name: "attaches-later", driver: true, Breaks: "a member is attached when it is first used", sabotage: func(b *breakable) {
		attachLate(b)
		b.declare = func(context.Context, string, backend.Declaration) (has backend.TopicSettings, err error) {
			return has, nil
		}
	}},
	{Name: "creates-groups-late", Breaks: "a group exists when it is first read", sabotage: attachLate},
	{Name: "starts-at-trimmed", Breaks: "a group that starts earliest starts at the first position", sabotage: func(b *breakable) {
		attach, published := b.attach, newSet(b)
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			for _, m := range ms {
				published.add(m.Position)
			}
			return err
		}
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			kept, _ := b.good.Read(ctx, c.Topic, "", 1<<20)
			src, err := attach(ctx, c)
			if err == nil && len(kept) < len(published.seen) {
				m := src.(*member)
				receive := m.receive
				m.receive = func(context.Context, int, int64) ([]backend.Delivery, error) {
					m.receive = receive
					return []backend.Delivery{{Err: backend.ErrGone}}, nil
				}
			}
			return src, err
		}
	}},
	{Name: "refuses-trimmed-starts", Breaks: "a group starts after a message that there is", sabotage: func(b *breakable) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			kept, _ := b.good.Read(ctx, c.Topic, "", 1<<20)
			after, ok := c.Start.After()
			if ok && !slices.ContainsFunc(kept, func(m backend.Message) bool { return m.Position == after }) {
				return nil, backend.ErrRefused
			}
			return attach(ctx, c)
		}
	}},
	{Name: "starts-every-time", Breaks: "a member says where its group goes on", sabotage: func(b *breakable) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			b.good.ResetGroup(ctx, c.Topic, c.Group, c.Start) //nolint:errcheck // it may not exist
			return attach(ctx, c)
		}
	}},
	{Name: "starts-anywhere", Breaks: "a group that cannot start where it should starts earliest", sabotage: func(b *breakable) {
		attach := b.attach
		refusing(b, func(ctx context.Context, c backend.Config, _ error) (backend.Source, error) {
			c.Start = backend.StartEarliest
			return attach(ctx, c)
		})
	}},
	{Name: "refuses-too-late", Breaks: "a group is made before its config is looked at", sabotage: func(b *breakable) {
		refusing(b, func(ctx context.Context, c backend.Config, err error) (backend.Source, error) {
			c.Start, c.Lease = backend.StartLatest, time.Minute
			if src, err := b.good.Attach(ctx, c); err == nil {
				src.Close()
			}
			return nil, err
		})
	}},
	{Name: "forgets-groups", Breaks: "a group lives as long as its members", sabotage: func(b *breakable) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			if s, err := b.good.Stats(ctx, c.Topic, c.Group); err == nil && s.Members == 0 {
				b.good.DeleteGroup(ctx, c.Topic, c.Group) //nolint:errcheck // it exists
			}
			return attach(ctx, c)
		}
	}},
}

// refusing lets a saboteur replace the result of an Attach that fails with ErrRefused.
func refusing(b *breakable, instead func(context.Context, backend.Config, error) (backend.Source, error)) {
	attach := b.attach
	b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
		src, err := attach(ctx, c)
		if errors.Is(err, backend.ErrRefused) {
			return instead(ctx, c, err)
		}
		return src, err
	}
}

// attachLate makes Attach return without attaching. Each member attaches when it first
// calls Receive.
func attachLate(b *breakable) {
	attach := b.attach
	b.attach = func(_ context.Context, c backend.Config) (backend.Source, error) {
		m := &member{config: c, shut: func() error { return nil }}
		m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
			src, err := attach(ctx, c)
			if err != nil {
				return nil, err
			}
			*m = *src.(*member)
			return m.receive(ctx, limit, maxBytes)
		}
		return m, nil
	}
}
