package badbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// reads lets a saboteur change the result of Read.
func reads(b *breakable, change func([]backend.Message) []backend.Message) {
	b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
		ms, err := b.good.Read(ctx, topic, from, limit)
		return change(ms), err
	}
}

var reading = []Saboteur{
	{Name: "reads-from-included", Breaks: "a read begins with the position it is given", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			after, _ := from.After()
			all, err := b.good.Read(ctx, topic, "", 1<<20)
			i := slices.IndexFunc(all, func(m backend.Message) bool { return m.Position >= after })
			if i < 0 {
				return nil, err
			}
			return all[i:min(i+limit, len(all))], err
		}
	}},
	{Name: "reads-settle", Breaks: "what is read is read for all", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			settleAll(ctx, b, topic)
			return ms, err
		}
	}},
	{Name: "reads-backwards", Breaks: "the newest is read first", sabotage: func(b *breakable) {
		reads(b, func(ms []backend.Message) []backend.Message {
			slices.Reverse(ms)
			return ms
		})
	}},
	{Name: "reads-bare", Breaks: "a read is about payloads", sabotage: func(b *breakable) {
		reads(b, func(ms []backend.Message) []backend.Message {
			for i := range ms {
				ms[i].Headers = nil
			}
			return ms
		})
	}},
	{Name: "reads-lose-neighbours", Breaks: "a message may be read before the one before it", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			if n := len(ms); n > 1 && n < limit {
				ms = slices.Delete(ms, n-2, n-1)
			}
			return ms, err
		}
	}},
	{Name: "reads-to-a-gap", Breaks: "a read ends at a removed message", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			return ms[:min(len(ms), 100)], err // as if one were there
		}
	}},
	{Name: "reads-share-memory", Breaks: "who reads does not change a message", sabotage: func(b *breakable) {
		shared := map[string][]byte{}
		reads(b, func(ms []backend.Message) []backend.Message {
			for i := range ms {
				if p, ok := shared[ms[i].Position]; ok {
					ms[i].Payload = p
				}
				shared[ms[i].Position] = ms[i].Payload
			}
			return ms
		})
	}},
	{Name: "reads-pages-of-bytes", Breaks: "a read returns as many messages as a page has room for", sabotage: func(b *breakable) {
		reads(b, func(ms []backend.Message) []backend.Message {
			size := 0
			return slices.DeleteFunc(ms, func(m backend.Message) bool {
				size += m.Size()
				return size > 64<<10
			})
		})
	}},
	{Name: "reads-wait", Breaks: "a read returns when there is something", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			if len(ms) == 0 {
				rest(ctx, time.Minute)
			}
			return ms, err
		}
	}},
	{Name: "shrugs", Breaks: "what does not exist is empty", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			return ms, shrug(err)
		}
		b.stats = func(ctx context.Context, topic, group string) (backend.Stats, error) {
			s, err := b.good.Stats(ctx, topic, group)
			return s, shrug(err)
		}
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			return shrug(b.good.Remove(ctx, topic, positions))
		}
		b.good = shrugging{b.good}
	}},
}

var removing = []Saboteur{
	{Name: "removes-nothing", Breaks: "a topic keeps every message", sabotage: func(b *breakable) {
		b.remove = func(ctx context.Context, topic string, _ []string) error {
			return b.good.Remove(ctx, topic, nil)
		}
	}},
	{Name: "removes-a-few", Breaks: "a call removes what fits into a request", sabotage: func(b *breakable) {
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			return b.good.Remove(ctx, topic, positions[:min(len(positions), 100)])
		}
	}},
	{Name: "removes-below", Breaks: "a topic without a message has none of the messages before it", sabotage: func(b *breakable) {
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			ms, err := b.good.Read(ctx, topic, "", 1<<20)
			for _, m := range ms {
				if len(positions) > 0 && m.Position < slices.Max(positions) {
					positions = append(positions, m.Position)
				}
			}
			return errors.Join(err, b.good.Remove(ctx, topic, positions))
		}
	}},
	{Name: "removes-once", Breaks: "a message that is removed again is missed", sabotage: func(b *breakable) {
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			ms, err := b.good.Read(ctx, topic, "", 1<<20)
			for _, p := range positions {
				if !slices.ContainsFunc(ms, func(m backend.Message) bool { return m.Position == p }) {
					return backend.ErrGone
				}
			}
			return errors.Join(err, b.good.Remove(ctx, topic, positions))
		}
	}},
	{Name: "skips-after-removed", Breaks: "a read begins behind the message that is where it begins", sabotage: func(b *breakable) {
		b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
			after, _ := from.After()
			all, err := b.good.Read(ctx, topic, "", 1<<20)
			i := slices.IndexFunc(all, func(m backend.Message) bool { return m.Position >= after })
			switch {
			case i < 0:
				return nil, err
			case from != "":
				i++
			}
			return all[i:min(i+limit, len(all))], err
		}
	}},
	{Name: "hides-removed", Breaks: "a removed message cannot be read, but groups get it", sabotage: func(b *breakable) {
		removed := map[string]bool{}
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			for _, p := range positions {
				removed[p] = true
			}
			return b.good.Remove(ctx, topic, nil)
		}
		reads(b, func(ms []backend.Message) []backend.Message {
			return slices.DeleteFunc(ms, func(m backend.Message) bool { return removed[m.Position] })
		})
	}},
}

// settleAll settles all messages of every group of topic.
func settleAll(ctx context.Context, b *breakable, topic string) {
	groups, _ := b.good.Groups(ctx, topic)
	for _, g := range groups {
		b.good.ResetGroup(ctx, topic, g, backend.StartLatest) //nolint:errcheck // it exists
	}
}

func shrug(err error) error {
	if errors.Is(err, backend.ErrGone) {
		return nil
	}
	return err
}

// shrugging is a backend that returns no error if the topic or the group to delete is
// missing.
type shrugging struct{ good }

func (a shrugging) DeleteTopic(ctx context.Context, topic string) error {
	return shrug(a.good.DeleteTopic(ctx, topic))
}

func (a shrugging) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	return shrug(a.good.Pause(ctx, topic, group, p))
}

func (a shrugging) Settle(ctx context.Context, topic, group, position string) (bool, error) {
	had, err := a.good.Settle(ctx, topic, group, position)
	return had, shrug(err)
}

func (a shrugging) Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
	settled, err := a.good.Settled(ctx, topic, group, positions)
	return settled, shrug(err)
}

func (a shrugging) DeleteGroup(ctx context.Context, topic, group string) error {
	return shrug(a.good.DeleteGroup(ctx, topic, group))
}

var declaring = []Saboteur{
	{Name: "declares-anew", driver: true, Breaks: "a topic that is declared is empty", sabotage: func(b *breakable) {
		declare := b.declare
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
			settleAll(ctx, b, topic)
			return declare(ctx, topic, d)
		}
	}},
	{Name: "declares-once", driver: true, Breaks: "a topic that exists cannot be declared", sabotage: func(b *breakable) {
		declare, declared := b.declare, newSet(b)
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
			if !declared.add(topic) {
				return backend.TopicSettings{}, backend.ErrRefused
			}
			return declare(ctx, topic, d)
		}
	}},
	{Name: "declares-for-ever", driver: true, Breaks: "a topic can always be declared", sabotage: func(b *breakable) {
		declare := b.declare
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
			if has, err := declare(ctx, topic, d); !errors.Is(err, backend.ErrClosed) {
				return has, err
			}
			return backend.TopicSettings{}, nil
		}
	}},
}

var closing = []Saboteur{
	{Name: "pings-for-ever", driver: true, Breaks: "a ping is always answered", sabotage: func(b *breakable) {
		b.ping = func(context.Context) error { return nil }
	}},
	{Name: "closes-once", Breaks: "what is closed cannot be closed", sabotage: func(b *breakable) {
		once := func(next func() error) func() error {
			closed := newSet(b)
			return func() error {
				if !closed.add("") {
					return backend.ErrClosed
				}
				return next()
			}
		}
		b.shut = once(b.good.Close)
		b.joined = func(m *member) { m.shut = once(m.next.Close) }
	}},
	{Name: "sources-never-close", Breaks: "a source lives as long as its backend", sabotage: func(b *breakable) {
		b.joined = func(m *member) { m.shut = func() error { return nil } }
	}},
	{Name: "does-nothing-when-closed", driver: true, Breaks: "who asks for nothing gets nothing", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				if len(ds) == 0 {
					return nil
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "looks-at-the-context-first", driver: true, Breaks: "a call whose context is done is not made", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				if ctx.Err() != nil {
					return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "never-closes", driver: true, Breaks: "a backend lives as long as its process", sabotage: func(b *breakable) {
		b.shut = func() error { return nil }
	}},
	{Name: "manages-for-ever", driver: true, Breaks: "a closed backend still looks after its topics", sabotage: func(b *breakable) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			next, err := b.good.Maintain(ctx, topic, group)
			if errors.Is(err, backend.ErrClosed) {
				return time.Minute, nil
			}
			return next, err
		}
	}},
	{Name: "deaf-to-close", Breaks: "a read that waits goes on after Close", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				if errors.Is(err, backend.ErrClosed) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
}
