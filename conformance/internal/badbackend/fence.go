package badbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A holding knows the latest delivery of each message in each group.
type holding struct {
	b      *breakable
	latest map[string]backend.Delivery
}

// holdings calls sabotage with each member that attaches, and with a holding of the latest
// deliveries.
func holdings(b *breakable, sabotage func(*member, holding)) {
	h := holding{b, map[string]backend.Delivery{}}
	b.joined = func(m *member) {
		m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, limit, maxBytes)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, d := range ds {
				h.latest[h.key(m, d)] = d
			}
			return ds, err
		}
		sabotage(m, h)
	}
}

func (h holding) key(m *member, d backend.Delivery) string {
	return m.config.Topic + " " + m.config.Group + " " + d.Position
}

func (h holding) of(m *member, d backend.Delivery) backend.Delivery {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	return h.latest[h.key(m, d)]
}

// stale reports whether the message was redelivered since the delivery d.
func (h holding) stale(m *member, d backend.Delivery) bool {
	return h.of(m, d).Attempt != d.Attempt
}

var fencing = []Saboteur{
	{Name: "old-groups-are-foreign", Breaks: "a group that was deleted is another group", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			mine := newSet(b)
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				for _, d := range ds {
					mine.add(fmt.Sprintf("%p", d.Token))
				}
				return ds, err
			}
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				err := m.next.Ack(ctx, ds)
				if errors.Is(err, backend.ErrLeaseLost) && !mine.has(fmt.Sprintf("%p", ds[0].Token)) {
					return backend.ErrRefused
				}
				return err
			}
		}
	}},
	{Name: "unfenced-acks", Breaks: "anyone acknowledges", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, h.of(m, *d))
				}
				err := m.next.Ack(ctx, backend.Lend(current))
				if errors.Is(err, backend.ErrLeaseLost) { // the message was acknowledged before
					return nil
				}
				return err
			}
		})
	}},
	{Name: "unfenced-delays", Breaks: "anyone gives back", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				var current []backend.Delayed
				for _, d := range ds {
					current = append(current, backend.Delayed{Delivery: h.of(m, d.Delivery), For: d.For, Refund: d.Refund})
				}
				return m.next.(backend.Delayer).Delay(ctx, current)
			}
		})
	}},
	{Name: "unfenced-extends", Breaks: "anyone extends", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, h.of(m, *d))
				}
				return m.next.(backend.Extender).Extend(ctx, backend.Lend(current))
			}
		})
	}},
	{Name: "moves-lost-deliveries", Breaks: "who is told that a lease is lost has moved the delivery", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				err := m.next.(backend.Delayer).Delay(ctx, ds)
				for _, d := range ds {
					if h.stale(m, d.Delivery) {
						d.Delivery = h.of(m, d.Delivery)
						m.next.(backend.Delayer).Delay(ctx, []backend.Delayed{d}) //nolint:errcheck // the point
					}
				}
				return err
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				err := m.next.(backend.Extender).Extend(ctx, ds)
				for _, d := range ds {
					if h.stale(m, *d) {
						m.next.(backend.Extender).Extend(ctx, backend.Lend([]backend.Delivery{h.of(m, *d)})) //nolint:errcheck // the point
					}
				}
				return err
			}
		})
	}},
	{Name: "loses-leases-in-silence", Breaks: "a lease that is lost is nothing to worry about", sabotage: func(b *breakable) {
		lost := func(err error) error {
			if errors.Is(err, backend.ErrLeaseLost) {
				return nil
			}
			return err
		}
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				return lost(m.next.(backend.Delayer).Delay(ctx, ds))
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return lost(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
	{Name: "delays-revive", Breaks: "what is given back comes back", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				err := m.next.(backend.Delayer).Delay(ctx, ds)
				for i := range ds {
					if errors.Is(backend.ErrorAt(err, i), backend.ErrLeaseLost) {
						again := ds[i].Message
						err = errors.Join(err, b.good.Publish(ctx, []*backend.Message{&again}))
					}
				}
				return err
			}
		}
	}},
	{Name: "blurs-lost-leases", Breaks: "a batch fails if one of its deliveries is lost", sabotage: func(b *breakable) {
		blur := func(err error) error {
			if errors.Is(err, backend.ErrLeaseLost) {
				return fmt.Errorf("some: %w", backend.ErrLeaseLost)
			}
			return err
		}
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				return blur(m.next.(backend.Delayer).Delay(ctx, ds))
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return blur(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
	{Name: "foreign-is-lost", Breaks: "a delivery of another group is one that another member holds", sabotage: func(b *breakable) {
		lost := func(err error) error {
			if errors.Is(err, backend.ErrRefused) {
				return backend.ErrLeaseLost
			}
			return err
		}
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error { return lost(m.next.Ack(ctx, ds)) }
		}
	}},
	{Name: "fences-by-attempt", Breaks: "a delivery is known by its attempt", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				current := slices.Clone(ds)
				for i, d := range ds {
					if !h.stale(m, d.Delivery) {
						current[i].Delivery = h.of(m, d.Delivery)
					}
				}
				return m.next.(backend.Delayer).Delay(ctx, current)
			}
		})
	}},
	{Name: "fences-by-member", Breaks: "a delivery is known by the member that holds it", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			received := map[string]backend.Delivery{}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				for _, d := range ds {
					received[d.Position] = d
				}
				return ds, err
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, received[d.Position])
				}
				return m.next.(backend.Extender).Extend(ctx, backend.Lend(current))
			}
		}
	}},
	{Name: "holds-what-it-gave-back", Breaks: "a member holds a message until it is redelivered", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				err := m.next.(backend.Extender).Extend(ctx, ds)
				if errors.Is(err, backend.ErrLeaseLost) && !h.stale(m, *ds[0]) {
					return nil
				}
				return err
			}
		})
	}},
	{Name: "fences-in-two-steps", Breaks: "who is the holder is looked up before the message is removed", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				for _, d := range ds {
					if h.stale(m, *d) {
						return backend.ErrLeaseLost
					}
				}
				time.Sleep(time.Millisecond)
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, h.of(m, *d))
				}
				return m.next.Ack(ctx, backend.Lend(current))
			}
		})
	}},
}
