package badbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
)

// replacing has the saboteurs of members that a later incarnation of their instance replaces.
var replacing = []Saboteur{
	{Name: "replaces-none", Breaks: "every member holds its messages until its lease has expired", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Instance, c.Incarnation = "", "" })
	}},
	{Name: "replaces-everyone", Breaks: "one process at a time is a member", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Instance, c.Incarnation = "all", rand.Text() })
	}},
	{Name: "replaces-its-own", Breaks: "a process has one member in a group", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) {
			if c.Instance != "" {
				c.Incarnation = rand.Text()
			}
		})
	}},
	{Name: "replaces-in-all-groups", Breaks: "a process begins again in all groups at once", sabotage: func(b *breakable) {
		attach := b.attach
		var earlier []backend.Config
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			src, err := attach(ctx, c)
			b.mu.Lock()
			before := earlier
			if c.Instance != "" {
				earlier = append(slices.Clip(earlier), c)
			}
			b.mu.Unlock()
			for _, e := range before {
				if e.Instance == c.Instance && e.Incarnation != c.Incarnation && e.Group != c.Group {
					e.Incarnation = c.Incarnation
					if also, err := b.good.Attach(ctx, e); err == nil {
						also.Close() // the point is the Attach
					}
				}
			}
			return src, err
		}
	}},
	{Name: "replaced-uncounted", Breaks: "a death is no attempt", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, bytes)
				for i := range ds {
					if m.config.Instance != "" && ds[i].Redelivered {
						ds[i].Attempt--
					}
				}
				return ds, err
			}
		}
	}},
	{Name: "replaced-are-not-told", Breaks: "a replaced member settles without an error", sabotage: func(b *breakable) {
		holding := func(err error) error {
			if errors.Is(err, backend.ErrLeaseLost) {
				return nil
			}
			return err
		}
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error { return holding(m.next.Ack(ctx, ds)) }
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				return holding(m.next.(backend.Delayer).Delay(ctx, ds))
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return holding(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
	{Name: "replaced-go-on", Breaks: "a replaced member waits for messages", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, bytes)
				if errors.Is(err, backend.ErrReplaced) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
	{Name: "replaced-are-closed", Breaks: "a replaced member was closed", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, bytes)
				if errors.Is(err, backend.ErrReplaced) {
					err = backend.ErrClosed
				}
				return ds, err
			}
		}
	}},
	{Name: "replaced-take-one", Breaks: "a read under way gets one more message", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var replaced atomic.Bool
			m.receive = func(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, bytes)
				if errors.Is(err, backend.ErrReplaced) && !replaced.Swap(true) {
					c := m.config
					c.Instance, c.Incarnation = "", ""
					again, err := b.good.Attach(context.WithoutCancel(ctx), c)
					if err != nil {
						return nil, err
					}
					return again.Receive(ctx, limit, bytes)
				}
				return ds, err
			}
		}
	}},
}
