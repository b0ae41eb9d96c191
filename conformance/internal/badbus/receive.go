package badbus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var receiving = []Saboteur{
	{"reverses-reads", "the last message comes first", func(b *bus) {
		delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
			slices.Reverse(ds)
			return ds
		})
	}},
	{"ignores-max", "a read returns about as many as asked for", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				return m.next.Receive(ctx, limit+1)
			}
		}
	}},
	{"new-first", "what is new goes before what comes back", func(b *bus) {
		delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
			slices.SortStableFunc(ds, func(a, b backend.Delivery) int { return a.Attempt - b.Attempt })
			return ds
		})
	}},
	{"stuck-attempt", "the attempt says that there was one", func(b *bus) {
		each(b, func(d *backend.Delivery) { d.Attempt = 1 })
	}},
	{"attempt-of-all-groups", "the attempt counts receipts of a message", func(b *bus) {
		receipts := map[string]int{}
		each(b, func(d *backend.Delivery) {
			b.mu.Lock()
			defer b.mu.Unlock()
			receipts[d.Topic+d.Position]++
			d.Attempt = receipts[d.Topic+d.Position]
		})
	}},
	{"abandons-on-cancel", "a read that is cancelled returns nothing", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				time.Sleep(time.Millisecond)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
	{"leaves-reads-behind", "a read that is cancelled goes on unseen", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				read := make(chan []backend.Delivery, 1)
				go func() {
					ds, _ := m.next.Receive(context.WithoutCancel(ctx), limit)
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
	{"polls-seldom", "a message is received within some seconds", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				for {
					look, cancel := context.WithTimeout(ctx, time.Millisecond)
					ds, err := m.next.Receive(look, limit)
					cancel()
					if len(ds) > 0 || ctx.Err() != nil || look.Err() == nil {
						return ds, err
					}
					rest(ctx, 3*time.Second)
				}
			}
		}
	}},
	{"one-reader-at-a-time", "one member of a group waits, the others after it", func(b *bus) {
		turn := make(chan struct{}, 1)
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				select {
				case turn <- struct{}{}:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				time.AfterFunc(m.config.Lease/10, func() { <-turn })
				return m.next.Receive(ctx, limit)
			}
		}
	}},
	{"deaf-to-cancel", "a read returns when there is something", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				deaf, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.config.Lease+2*time.Second)
				defer cancel()
				ds, err := m.next.Receive(deaf, limit)
				if len(ds) == 0 && ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var sharing = []Saboteur{
	{"one-queue", "groups share the work", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Group = "shared" })
	}},
	{"broadcasts", "each member gets every message", func(b *bus) {
		n := 0
		joining(b, func(c *backend.Config) {
			b.mu.Lock()
			defer b.mu.Unlock()
			n++
			c.Group = fmt.Sprintf("%s-%d", c.Group, n)
		})
	}},
	{"no-lease", "a message is due until it is acknowledged", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Lease = time.Nanosecond })
	}},
}

var starting = []Saboteur{
	{"always-latest", "a group sees what comes after it", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Start = backend.StartLatest })
	}},
	{"always-earliest", "a group sees everything", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Start = backend.StartEarliest })
	}},
	{"creates-groups-late", "a group exists when it is first read", func(b *bus) {
		attach := b.attach
		b.attach = func(_ context.Context, c backend.Config) (backend.Source, error) {
			m := &member{config: c, shut: func() error { return nil }}
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				src, err := attach(ctx, c)
				if err != nil {
					return nil, err
				}
				*m = *src.(*member)
				return m.receive(ctx, limit)
			}
			return m, nil
		}
	}},
	{"starts-every-time", "a member says where its group goes on", func(b *bus) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			b.good.ResetGroup(ctx, c.Topic, c.Group, c.Start) //nolint:errcheck // it may not exist
			return attach(ctx, c)
		}
	}},
	{"forgets-groups", "a group lives as long as its members", func(b *bus) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			if s, err := b.good.Stats(ctx, c.Topic, c.Group); err == nil && s.Members == 0 {
				b.good.DeleteGroup(ctx, c.Topic, c.Group) //nolint:errcheck // it exists
			}
			return attach(ctx, c)
		}
	}},
}
