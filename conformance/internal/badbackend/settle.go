package badbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
)

var acking = []Saboteur{
	{Name: "ignores-acks", Breaks: "an acknowledgement is a courtesy", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(context.Context, []*backend.Delivery) error { return nil }
		}
	}},
	{Name: "acks-all-it-holds", Breaks: "an acknowledgement is of everything received so far", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var held []backend.Delivery
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				held = append(held, ds...)
				return ds, err
			}
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				if len(ds) == 0 {
					return nil
				}
				return m.next.Ack(ctx, backend.Lend(held))
			}
		}
	}},
	{Name: "refuses-second-acks", Breaks: "a message is acknowledged once", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			acked := newSet(b)
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				for _, d := range ds {
					if !acked.add(d.Position) {
						return errors.New("acknowledged before")
					}
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "fences-acks", Breaks: "only the holder acknowledges", sabotage: func(b *breakable) {
		holdings(b, func(m *member, h holding) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				return m.next.Ack(ctx, slices.DeleteFunc(slices.Clone(ds), func(d *backend.Delivery) bool { return h.stale(m, *d) }))
			}
		})
	}},
	{Name: "one-ack-at-a-time", Breaks: "a member has one caller", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var acked []*backend.Delivery
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				b.mu.Lock()
				acked = faultbroker.Copied(ds)
				b.mu.Unlock()
				time.Sleep(time.Millisecond)
				b.mu.Lock()
				defer b.mu.Unlock()
				return m.next.Ack(ctx, acked)
			}
		}
	}},
	{Name: "drops-unconfirmed-acks", Breaks: "who wants to be sure asks for confirmation", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			if !m.config.ConfirmAcks {
				m.ack = func(context.Context, []*backend.Delivery) error { return nil }
			}
		}
	}},
	{Name: "acks-later", driver: true, Breaks: "an acknowledgement is sent soon", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				own := faultbroker.Copied(ds)
				time.AfterFunc(20*time.Millisecond, func() {
					m.next.Ack(context.WithoutCancel(ctx), own) //nolint:errcheck // nobody would know
				})
				return nil
			}
		}
	}},
	{Name: "keeps-lent-deliveries", driver: true, Breaks: "who acknowledges leaves the deliveries to the driver", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var kept []*backend.Delivery
			m.ack = func(_ context.Context, ds []*backend.Delivery) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				kept = append(kept, ds...)
				return nil
			}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				b.mu.Lock()
				m.next.Ack(ctx, kept) //nolint:errcheck // some have changed
				kept = nil
				b.mu.Unlock()
				return m.next.Receive(ctx, limit, maxBytes)
			}
		}
	}},
	{Name: "clears-lent-deliveries", driver: true, Breaks: "what is acknowledged nobody needs", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				err := m.next.Ack(ctx, ds)
				for _, d := range ds {
					*d = backend.Delivery{}
				}
				return err
			}
		}
	}},
	{Name: "acks-only-held", Breaks: "what was given back cannot be acknowledged", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			given := newSet(b)
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					given.add(d.Position)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				return m.next.Ack(ctx, slices.DeleteFunc(slices.Clone(ds), func(d *backend.Delivery) bool { return given.has(d.Position) }))
			}
		}
	}},
	{Name: "refuses-none", driver: true, Breaks: "a call must be about something", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				if len(ds) == 0 {
					return backend.ErrRefused
				}
				return m.next.(backend.Extender).Extend(ctx, ds)
			}
		}
	}},
	{Name: "cancelled-acks-have-no-class", driver: true, Breaks: "a context says why it is done", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				return cmp.Or(ctx.Err(), m.next.Ack(ctx, ds))
			}
		}
	}},
	{Name: "acks-what-was-cancelled", driver: true, Breaks: "a call that was cancelled had no effect", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				err := m.next.Ack(context.WithoutCancel(ctx), ds)
				if ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
				}
				return err
			}
		}
	}},
}

var leasing = []Saboteur{
	{Name: "short-leases", Breaks: "a lease is shorter than asked for", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Lease = c.Lease * 3 / 4 })
	}},
	{Name: "long-leases", Breaks: "a lease is longer than asked for", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Lease *= 6 })
	}},
	{Name: "corrects-leases", Breaks: "a lease that makes no sense is a minute", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) {
			if c.Lease <= 0 {
				c.Lease = time.Minute
			}
		})
	}},
	{Name: "shortest-lease-counts", Breaks: "a group has the lease of its most impatient member", sabotage: func(b *breakable) {
		var shortest *member
		b.joined = func(m *member) {
			if shortest == nil || m.config.Lease < shortest.config.Lease {
				shortest = m
			}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				return ds, errors.Join(err, shortest.extend(ctx, backend.Lend(ds)))
			}
		}
	}},
	{Name: "close-settles", Breaks: "what a member holds ends with it", sabotage: func(b *breakable) {
		closingWith(b, func(m *member, held []backend.Delivery) error {
			return m.next.Ack(context.Background(), backend.Lend(held)) //nolint:forbidigo // Close has none
		})
	}},
	{Name: "close-releases", Breaks: "what a member holds is due when it leaves", sabotage: func(b *breakable) {
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

// closingWith calls f before a member closes. f gets all deliveries that the member has
// received.
func closingWith(b *breakable, f func(m *member, received []backend.Delivery) error) {
	b.joined = func(m *member) {
		var received []backend.Delivery
		m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, limit, maxBytes)
			received = append(received, ds...)
			return ds, err
		}
		m.shut = func() error {
			f(m, received) //nolint:errcheck // it may be closed already
			return m.next.Close()
		}
	}
}

// delays lets a saboteur change each [backend.Delayed].
func delays(b *breakable, change func(m *member, d *backend.Delayed)) {
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
	{Name: "delays-shorter", Breaks: "a delay is about as long as asked for", sabotage: func(b *breakable) {
		delays(b, func(_ *member, d *backend.Delayed) { d.For = d.For * 9 / 10 })
	}},
	{Name: "truncates-delays", Breaks: "a delay has whole milliseconds", sabotage: func(b *breakable) {
		delays(b, func(_ *member, d *backend.Delayed) { d.For = d.For.Truncate(time.Millisecond) })
	}},
	{Name: "delays-longer", Breaks: "a delay is at least as long as asked for", sabotage: func(b *breakable) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = max(d.For, 0) + 2*m.config.Lease })
	}},
	{Name: "ignores-delays", Breaks: "what is given back comes back with its lease", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.delay = func(context.Context, []backend.Delayed) error { return nil }
		}
	}},
	{Name: "delays-overflow", Breaks: "a delay beyond the clock's range is over at once", sabotage: func(b *breakable) {
		delays(b, func(_ *member, d *backend.Delayed) {
			if d.For > 0 && time.Now().UnixNano()+int64(d.For) < 0 {
				d.For = 0
			}
		})
	}},
	{Name: "caps-delays", Breaks: "a delay is at most three leases", sabotage: func(b *breakable) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = min(d.For, 3*m.config.Lease) })
	}},
	{Name: "delays-a-lease-at-least", Breaks: "a delay is at least a lease", sabotage: func(b *breakable) {
		delays(b, func(m *member, d *backend.Delayed) { d.For = max(d.For, m.config.Lease) })
	}},
	{Name: "reads-miss-delays", Breaks: "a read that waits learns of what is given back when it ends", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var reading atomic.Int64
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				reading.Add(1)
				defer reading.Add(-1)
				return m.next.Receive(ctx, limit, maxBytes)
			}
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				later := slices.Clone(ds)
				for i := range later {
					if reading.Load() > 0 {
						later[i].For = max(ds[i].For, 600*time.Millisecond)
					}
				}
				return m.next.(backend.Delayer).Delay(ctx, later)
			}
		}
	}},
	{Name: "first-due-first", Breaks: "what was due first goes first", sabotage: func(b *breakable) {
		due := map[string]time.Time{} // for each position, when the message is due
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, d := range ds {
					due[d.Position] = time.Now().Add(d.For)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				b.mu.Lock()
				defer b.mu.Unlock()
				slices.SortStableFunc(ds, func(a, b backend.Delivery) int { return due[a.Position].Compare(due[b.Position]) })
				return ds, err
			}
		}
	}},
	{Name: "delays-by-publishing", Breaks: "what is given back is published again", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					m.next.Ack(ctx, []*backend.Delivery{&d.Delivery}) //nolint:errcheck // open
					again := d.Message
					time.AfterFunc(d.For, func() {
						b.good.Publish(ctx, []*backend.Message{&again}) //nolint:errcheck // nobody would know
					})
				}
				return nil
			}
		}
	}},
	{Name: "waits-for-delayed", Breaks: "a group goes on when what is delayed has come back", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var due time.Time
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for _, d := range ds {
					due = time.Now().Add(d.For)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				rest(ctx, time.Until(due))
				return m.next.Receive(ctx, limit, maxBytes)
			}
		}
	}},
	{Name: "delays-die-with-member", Breaks: "a member looks after what it delayed", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.ConfirmAcks = false }) // because a fenced Ack would not settle the deliveries that the member gave back
		closingWith(b, func(m *member, received []backend.Delivery) error {
			return m.next.Ack(context.Background(), backend.Lend(received)) //nolint:forbidigo // Close has none
		})
	}},
	{Name: "refunds-unasked", Breaks: "an attempt is one that ended", sabotage: func(b *breakable) {
		delays(b, func(_ *member, d *backend.Delayed) { d.Refund = true })
	}},
	{Name: "attempt-is-a-byte", Breaks: "nobody tries more than 255 times", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Attempt = int(uint8(d.Attempt)) })
	}},
	{Name: "ignores-refunds", Breaks: "every receipt counts", sabotage: func(b *breakable) {
		delays(b, func(_ *member, d *backend.Delayed) { d.Refund = false })
	}},
}
