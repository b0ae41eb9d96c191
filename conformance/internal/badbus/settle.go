package badbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// A holding remembers the latest receipt of each message in each group.
type holding struct {
	b      *bus
	latest map[string]backend.Delivery
}

// holdings lets a saboteur know who holds what, and breaks its members.
func holdings(b *bus, sabotage func(*member, holding)) {
	h := holding{b, map[string]backend.Delivery{}}
	b.joined = func(m *member) {
		m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, limit)
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

// stale reports whether d was handed out again since.
func (h holding) stale(m *member, d backend.Delivery) bool {
	return h.of(m, d).Attempt != d.Attempt
}

var acking = []Saboteur{
	{"ignores-acks", "an acknowledgement is a courtesy", func(b *bus) {
		b.joined = func(m *member) {
			m.ack = func(context.Context, []backend.Delivery) error { return nil }
		}
	}},
	{"acks-all-it-holds", "an acknowledgement is of everything received so far", func(b *bus) {
		b.joined = func(m *member) {
			var held []backend.Delivery
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				held = append(held, ds...)
				return ds, err
			}
			m.ack = func(ctx context.Context, ds []backend.Delivery) error {
				if len(ds) == 0 {
					return nil
				}
				return m.next.Ack(ctx, held)
			}
		}
	}},
	{"refuses-second-acks", "a message is acknowledged once", func(b *bus) {
		b.joined = func(m *member) {
			acked := newSet(b)
			m.ack = func(ctx context.Context, ds []backend.Delivery) error {
				for _, d := range ds {
					if !acked.add(d.Position) {
						return errors.New("acknowledged before")
					}
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{"fences-acks", "only the holder acknowledges", func(b *bus) {
		holdings(b, func(m *member, h holding) {
			m.ack = func(ctx context.Context, ds []backend.Delivery) error {
				return m.next.Ack(ctx, slices.DeleteFunc(slices.Clone(ds), func(d backend.Delivery) bool { return h.stale(m, d) }))
			}
		})
	}},
	{"one-ack-at-a-time", "a member has one caller", func(b *bus) {
		b.joined = func(m *member) {
			var acked []backend.Delivery
			m.ack = func(ctx context.Context, ds []backend.Delivery) error {
				b.mu.Lock()
				acked = ds
				b.mu.Unlock()
				time.Sleep(time.Millisecond)
				b.mu.Lock()
				defer b.mu.Unlock()
				return m.next.Ack(ctx, acked)
			}
		}
	}},
	{"drops-unconfirmed-acks", "who wants to be sure asks for confirmation", func(b *bus) {
		b.joined = func(m *member) {
			if !m.config.ConfirmAcks {
				m.ack = func(context.Context, []backend.Delivery) error { return nil }
			}
		}
	}},
	{"acks-only-held", "what was given back cannot be acknowledged", func(b *bus) {
		b.joined = func(m *member) {
			given := newSet(b)
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					given.add(d.Position)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
			m.ack = func(ctx context.Context, ds []backend.Delivery) error {
				return m.next.Ack(ctx, slices.DeleteFunc(slices.Clone(ds), func(d backend.Delivery) bool { return given.has(d.Position) }))
			}
		}
	}},
}

var leasing = []Saboteur{
	{"short-leases", "a lease is shorter than asked for", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Lease = c.Lease * 3 / 4 })
	}},
	{"long-leases", "a lease is longer than asked for", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Lease *= 6 })
	}},
	{"shortest-lease-counts", "a group has the lease of its most impatient member", func(b *bus) {
		var shortest *member
		b.joined = func(m *member) {
			if shortest == nil || m.config.Lease < shortest.config.Lease {
				shortest = m
			}
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				return ds, errors.Join(err, shortest.extend(ctx, ds))
			}
		}
	}},
	{"close-settles", "what a member holds ends with it", func(b *bus) {
		closingWith(b, func(m *member, held []backend.Delivery) error {
			return m.next.Ack(context.Background(), held) //nolint:forbidigo // Close has none
		})
	}},
	{"close-releases", "what a member holds is due when it leaves", func(b *bus) {
		closingWith(b, func(m *member, held []backend.Delivery) error {
			var ds []backend.Delayed
			for _, d := range held {
				ds = append(ds, backend.Delayed{Delivery: d})
			}
			m.next.(backend.Delayer).Delay(context.Background(), ds) //nolint:errcheck,forbidigo // some are settled; Close has none
			return nil
		})
	}},
}

// closingWith calls f with everything that a member received, before it closes.
func closingWith(b *bus, f func(m *member, received []backend.Delivery) error) {
	b.joined = func(m *member) {
		var received []backend.Delivery
		m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, limit)
			received = append(received, ds...)
			return ds, err
		}
		m.shut = func() error {
			f(m, received) //nolint:errcheck // it may be closed already
			return m.next.Close()
		}
	}
}

// delays lets a saboteur change what is delayed.
func delays(b *bus, change func(m *member, d *backend.Delayed)) {
	b.joined = func(m *member) {
		m.delay = func(ctx context.Context, ds []backend.Delayed) error {
			changed := slices.Clone(ds)
			for i := range changed {
				change(m, &changed[i])
			}
			return m.next.(backend.Delayer).Delay(ctx, changed)
		}
	}
}

var delaying = []Saboteur{
	{"delays-shorter", "a delay is about as long as asked for", func(b *bus) {
		delays(b, func(_ *member, d *backend.Delayed) { d.For = d.For * 9 / 10 })
	}},
	{"delays-longer", "a delay is at least as long as asked for", func(b *bus) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = max(d.For, 0) + 2*m.config.Lease })
	}},
	{"ignores-delays", "what is given back comes back with its lease", func(b *bus) {
		b.joined = func(m *member) {
			m.delay = func(context.Context, []backend.Delayed) error { return nil }
		}
	}},
	{"caps-delays", "a delay is at most three leases", func(b *bus) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = min(d.For, 3*m.config.Lease) })
	}},
	{"delays-a-lease-at-least", "a delay is at least a lease", func(b *bus) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = max(d.For, m.config.Lease) })
	}},
	{"delays-by-publishing", "what is given back is published again", func(b *bus) {
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					m.next.Ack(ctx, []backend.Delivery{d.Delivery}) //nolint:errcheck // open
					again := d.Message
					time.AfterFunc(d.For, func() {
						b.good.Publish(ctx, []*backend.Message{&again}) //nolint:errcheck // nobody would know
					})
				}
				return nil
			}
		}
	}},
	{"waits-for-delayed", "a group goes on when what is delayed has come back", func(b *bus) {
		b.joined = func(m *member) {
			var due time.Time
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					due = time.Now().Add(d.For)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				rest(ctx, time.Until(due))
				return m.next.Receive(ctx, limit)
			}
		}
	}},
	{"delays-die-with-member", "a member looks after what it delayed", func(b *bus) {
		closingWith(b, func(m *member, received []backend.Delivery) error {
			return m.next.Ack(context.Background(), received) //nolint:forbidigo // Close has none
		})
	}},
	{"refunds-unasked", "an attempt is one that ended", func(b *bus) {
		delays(b, func(_ *member, d *backend.Delayed) { d.Refund = true })
	}},
	{"ignores-refunds", "every receipt counts", func(b *bus) {
		delays(b, func(_ *member, d *backend.Delayed) { d.Refund = false })
	}},
}

var extending = []Saboteur{
	{"ignores-extends", "a lease cannot be extended", func(b *bus) {
		b.joined = func(m *member) {
			m.extend = func(context.Context, []backend.Delivery) error { return nil }
		}
	}},
	{"extends-for-long", "who extends needs much more time", func(b *bus) {
		b.joined = func(m *member) {
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				var delayed []backend.Delayed
				for _, d := range ds {
					delayed = append(delayed, backend.Delayed{Delivery: d, For: 4 * m.config.Lease})
				}
				return m.next.(backend.Delayer).Delay(ctx, delayed)
			}
		}
	}},
	{"counts-extends", "every lease is an attempt", func(b *bus) {
		extends := map[string]int{}
		b.joined = func(m *member) {
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				for _, d := range ds {
					extends[d.Position]++
				}
				return m.next.(backend.Extender).Extend(ctx, ds)
			}
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				for i := range ds {
					ds[i].Attempt += extends[ds[i].Position]
				}
				return ds, err
			}
		}
	}},
}

var fencing = []Saboteur{
	{"unfenced-delays", "anyone gives back", func(b *bus) {
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
	{"unfenced-extends", "anyone extends", func(b *bus) {
		holdings(b, func(m *member, h holding) {
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, h.of(m, d))
				}
				return m.next.(backend.Extender).Extend(ctx, current)
			}
		})
	}},
	{"moves-lost-deliveries", "who is told that a lease is lost has moved the delivery", func(b *bus) {
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
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				err := m.next.(backend.Extender).Extend(ctx, ds)
				for _, d := range ds {
					if h.stale(m, d) {
						m.next.(backend.Extender).Extend(ctx, []backend.Delivery{h.of(m, d)}) //nolint:errcheck // the point
					}
				}
				return err
			}
		})
	}},
	{"loses-leases-in-silence", "a lease that is lost is nothing to worry about", func(b *bus) {
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
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				return lost(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
	{"delays-revive", "what is given back comes back", func(b *bus) {
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
	{"blurs-lost-leases", "a batch fails if one of its deliveries is lost", func(b *bus) {
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
			m.extend = func(ctx context.Context, ds []backend.Delivery) error {
				return blur(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
}
