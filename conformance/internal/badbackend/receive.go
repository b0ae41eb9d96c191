package badbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var receiving = []Saboteur{
	{Name: "reverses-reads", Breaks: "the last message comes first", sabotage: func(b *breakable) {
		delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
			slices.Reverse(ds)
			return ds
		})
	}},
	{Name: "ignores-max", Breaks: "a read returns about as many as asked for", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				return m.next.Receive(ctx, limit+1, maxBytes)
			}
		}
	}},
	{Name: "ignores-max-bytes", Breaks: "a read returns as many as asked for, whatever their size", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, _ int64) ([]backend.Delivery, error) {
				return m.next.Receive(ctx, limit, 0)
			}
		}
	}},
	{Name: "never-exceeds-max-bytes", Breaks: "a read never returns more bytes than asked for", sabotage: func(b *breakable) {
		fitting(b, 0, backend.Delayed{Refund: true})
	}},
	{Name: "counts-the-rest", Breaks: "messages that do not fit are given back", sabotage: func(b *breakable) {
		fitting(b, 1, backend.Delayed{})
	}},
	{Name: "delays-the-rest", Breaks: "messages that do not fit are given back, at no attempt's cost", sabotage: func(b *breakable) {
		fitting(b, 1, backend.Delayed{For: 20 * time.Millisecond, Refund: true})
	}},
	{Name: "waits-for-none", driver: true, Breaks: "a read returns when there is something, be it for another", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				if limit <= 0 {
					<-ctx.Done()
					return nil, nil
				}
				return m.next.Receive(ctx, limit, maxBytes)
			}
		}
	}},
	{Name: "new-first", Breaks: "what is new goes before what comes back", sabotage: func(b *breakable) {
		delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
			slices.SortStableFunc(ds, func(a, b backend.Delivery) int { return a.Attempt - b.Attempt })
			return ds
		})
	}},
	{Name: "stuck-attempt", Breaks: "the attempt says that there was one", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Attempt = 1 })
	}},
	{Name: "redelivered-never", Breaks: "the delivery says that there was one before", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Redelivered = false })
	}},
	{Name: "redelivered-by-attempt", Breaks: "a delivery that is no attempt is a delivery", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Redelivered = d.Attempt > 1 })
	}},
	{Name: "redelivered-in-other-groups", Breaks: "the groups know nothing of each other", sabotage: func(b *breakable) {
		seen := map[string]bool{}
		each(b, func(d *backend.Delivery) {
			b.mu.Lock()
			defer b.mu.Unlock()
			d.Redelivered = seen[d.Topic+d.Position]
			seen[d.Topic+d.Position] = true
		})
	}},
	{Name: "redelivered-to-the-member", Breaks: "a member knows what it has received before", sabotage: func(b *breakable) {
		seen := map[*member]map[string]bool{}
		delivered(b, func(m *member, ds []backend.Delivery) []backend.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			if seen[m] == nil {
				seen[m] = map[string]bool{}
			}
			for i, d := range ds {
				ds[i].Redelivered = seen[m][d.Position]
				seen[m][d.Position] = true
			}
			return ds
		})
	}},
	{Name: "counts-lost-as-held", driver: true, Breaks: "a member holds what it has not settled", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			var held atomic.Int64
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				limit = min(limit, 2*m.config.MaxInFlight-int(held.Load()))
				if limit <= 0 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				held.Add(int64(len(ds)))
				return ds, err
			}
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				held.Add(int64(-len(ds)))
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "attempt-of-all-groups", Breaks: "the attempt counts receipts of a message", sabotage: func(b *breakable) {
		receipts := map[string]int{}
		each(b, func(d *backend.Delivery) {
			b.mu.Lock()
			defer b.mu.Unlock()
			receipts[d.Topic+d.Position]++
			d.Attempt = receipts[d.Topic+d.Position]
		})
	}},
	{Name: "abandons-on-cancel", Breaks: "a read that is cancelled returns nothing", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				time.Sleep(time.Millisecond)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
	{Name: "leaves-reads-behind", driver: true, Breaks: "a read that is cancelled goes on unseen", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				read := make(chan []backend.Delivery, 1)
				go func() {
					ds, _ := m.next.Receive(context.WithoutCancel(ctx), limit, maxBytes)
					read <- ds
				}()
				select {
				case ds := <-read:
					return ds, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
	}},
	{Name: "polls-seldom", driver: true, Breaks: "a message is received within some seconds", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				for {
					look, cancel := context.WithTimeout(ctx, time.Millisecond)
					ds, err := m.next.Receive(look, limit, maxBytes)
					cancel()
					if len(ds) > 0 || ctx.Err() != nil || look.Err() == nil {
						return ds, err
					}
					rest(ctx, 3*time.Second)
				}
			}
		}
	}},
	{Name: "one-reader-at-a-time", Breaks: "one member of a group waits, the others after it", sabotage: func(b *breakable) {
		turn := make(chan struct{}, 1)
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				select {
				case turn <- struct{}{}:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				time.AfterFunc(m.config.Lease/10, func() { <-turn })
				return m.next.Receive(ctx, limit, maxBytes)
			}
		}
	}},
	{Name: "counts-twice", Breaks: "an attempt is a hand-out or a half", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Attempt *= 2 })
	}},
	{Name: "skips-gone", driver: true, Breaks: "a message without a body is none", sabotage: func(b *breakable) {
		delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
			return slices.DeleteFunc(ds, func(d backend.Delivery) bool { return d.Err != nil })
		})
	}},
	{Name: "waits-out-trouble", driver: true, Breaks: "a read returns when there is something, whatever happens in between", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				for {
					ds, err := m.next.Receive(ctx, limit, maxBytes)
					if len(ds) > 0 || ctx.Err() != nil {
						return ds, err
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
	}},
	{Name: "reads-restlessly", driver: true, Breaks: "a read looks for messages all the time", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				look, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
				defer cancel()
				ds, err := m.next.Receive(look, limit, maxBytes)
				if ctx.Err() == nil && look.Err() != nil {
					err = nil
				}
				return ds, err
			}
		}
	}},
	{Name: "small-pool", driver: true, Breaks: "calls wait for one of eight connections", sabotage: func(b *breakable) {
		pool := make(chan struct{}, 8)
		take := func(ctx context.Context) (put func()) {
			select {
			case pool <- struct{}{}:
				return func() { <-pool }
			case <-ctx.Done():
				return func() {}
			}
		}
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				defer take(ctx)()
				return m.next.Receive(ctx, limit, maxBytes)
			}
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				defer take(ctx)()
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "cancel-is-an-outage", driver: true, Breaks: "a read that was cancelled has failed", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				if ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
				}
				return ds, err
			}
		}
	}},
	{Name: "deaf-to-cancel", Breaks: "a read returns when there is something", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				deaf, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.config.Lease+2*time.Second)
				defer cancel()
				ds, err := m.next.Receive(deaf, limit, maxBytes)
				if len(ds) == 0 && ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
}

// fitting lets Receive read without a bound in bytes. Of each read it returns the first
// deliveries that fit, or the first least of them. It gives the others back as by how.
func fitting(b *breakable, least int, how backend.Delayed) {
	b.joined = func(m *member) {
		m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, limit, 0)
			if maxBytes <= 0 {
				return ds, err
			}
			n := 0
			for n < len(ds) && (maxBytes >= int64(ds[n].Size()) || n < least) {
				maxBytes -= int64(ds[n].Size())
				n++
			}
			var back []backend.Delayed
			for _, d := range ds[n:] {
				back = append(back, backend.Delayed{Delivery: d, For: how.For, Refund: how.Refund})
			}
			if len(back) > 0 {
				err = errors.Join(err, m.next.(backend.Delayer).Delay(context.WithoutCancel(ctx), back))
			}
			return ds[:n], err
		}
	}
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var sharing = []Saboteur{
	{Name: "one-queue", Breaks: "groups share the work", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Group = "shared" })
	}},
	{Name: "broadcasts", Breaks: "each member gets every message", sabotage: func(b *breakable) {
		n := 0
		joining(b, func(c *backend.Config) {
			b.mu.Lock()
			defer b.mu.Unlock()
			n++
			c.Group = fmt.Sprintf("%s-%d", c.Group, n)
		})
	}},
	{Name: "makes-groups-again", Breaks: "a group that was missing a moment ago is made", sabotage: func(b *breakable) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			_, err := b.good.Stats(ctx, c.Topic, c.Group)
			time.Sleep(time.Millisecond)
			if errors.Is(err, backend.ErrGone) {
				b.good.DeleteGroup(ctx, c.Topic, c.Group) //nolint:errcheck // it may not exist
			}
			return attach(ctx, c)
		}
	}},
	{Name: "no-lease", Breaks: "a message is due until it is acknowledged", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Lease = time.Nanosecond })
	}},
}
