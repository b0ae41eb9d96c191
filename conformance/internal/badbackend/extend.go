package badbackend

import (
	"context"
	"maps"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

var extending = []Saboteur{
	{Name: "ignores-extends", Breaks: "a lease cannot be extended", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.extend = func(context.Context, []*backend.Delivery) error { return nil }
		}
	}},
	{Name: "extends-for-long", Breaks: "who extends needs much more time", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				var delayed []backend.Delayed
				for _, d := range ds {
					delayed = append(delayed, backend.Delayed{Delivery: *d, For: 4 * m.config.Lease})
				}
				return m.next.(backend.Delayer).Delay(ctx, delayed)
			}
		}
	}},
	{Name: "extends-all-it-holds", Breaks: "a member extends its lease", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			held := map[string]backend.Delivery{}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				for _, d := range ds {
					held[d.Position] = d
				}
				return ds, err
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				all := slices.Collect(maps.Values(held))
				m.next.(backend.Extender).Extend(ctx, backend.Lend(all)) //nolint:errcheck // some are settled
				return m.next.(backend.Extender).Extend(ctx, ds)
			}
		}
	}},
	{Name: "extends-by-the-first-lease", Breaks: "a group has the lease of the member that created it", sabotage: func(b *breakable) {
		first := map[string]*member{} // by group
		b.joined = func(m *member) {
			g := m.config.Topic + " " + m.config.Group
			if first[g] == nil {
				first[g] = m
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return first[g].next.(backend.Extender).Extend(ctx, ds)
			}
		}
	}},
	{Name: "counts-extends", Breaks: "every lease is an attempt", sabotage: func(b *breakable) {
		extends := map[string]int{}
		b.joined = func(m *member) {
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				for _, d := range ds {
					extends[d.Position]++
				}
				return m.next.(backend.Extender).Extend(ctx, ds)
			}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				for i := range ds {
					ds[i].Attempt += extends[ds[i].Position]
				}
				return ds, err
			}
		}
	}},
}
