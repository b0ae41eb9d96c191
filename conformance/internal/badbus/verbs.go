package badbus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// reads lets a saboteur change what Read returns.
func reads(b *bus, change func([]backend.Message) []backend.Message) {
	b.read = func(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
		ms, err := b.good.Read(ctx, topic, from, limit)
		return change(ms), err
	}
}

var reading = []Saboteur{
	{"reads-from-included", "a read begins with the position it is given", func(b *bus) {
		b.read = func(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
			all, err := b.good.Read(ctx, topic, "", 1<<20)
			i := slices.IndexFunc(all, func(m backend.Message) bool { return m.Position >= from })
			if i < 0 {
				return nil, err
			}
			return all[i:min(i+limit, len(all))], err
		}
	}},
	{"reads-settle", "what is read is read for all", func(b *bus) {
		b.read = func(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			settleAll(ctx, b, topic)
			return ms, err
		}
	}},
	{"reads-backwards", "the newest is read first", func(b *bus) {
		reads(b, func(ms []backend.Message) []backend.Message {
			slices.Reverse(ms)
			return ms
		})
	}},
	{"reads-bare", "a read is about payloads", func(b *bus) {
		reads(b, func(ms []backend.Message) []backend.Message {
			for i := range ms {
				ms[i].Headers = nil
			}
			return ms
		})
	}},
	{"reads-share-memory", "who reads does not change a message", func(b *bus) {
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
	{"reads-wait", "a read returns when there is something", func(b *bus) {
		b.read = func(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			if len(ms) == 0 {
				rest(ctx, time.Minute)
			}
			return ms, err
		}
	}},
	{"shrugs", "what does not exist is empty", func(b *bus) {
		b.read = func(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
			ms, err := b.good.Read(ctx, topic, from, limit)
			return ms, shrug(err)
		}
		b.stats = func(ctx context.Context, topic, group string) (backend.Stats, error) {
			s, err := b.good.Stats(ctx, topic, group)
			return s, shrug(err)
		}
		b.admin = shrugging{b.good}
	}},
}

// settleAll lets every group of topic begin after what there is.
func settleAll(ctx context.Context, b *bus, topic string) {
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

// shrugging is an Admin to whom everything exists.
type shrugging struct{ backend.Admin }

func (a shrugging) DeleteTopic(ctx context.Context, topic string) error {
	return shrug(a.Admin.DeleteTopic(ctx, topic))
}

func (a shrugging) DeleteGroup(ctx context.Context, topic, group string) error {
	return shrug(a.Admin.DeleteGroup(ctx, topic, group))
}

// tells lets a saboteur change Stats.
func tells(b *bus, change func(*backend.Stats)) {
	b.stats = func(ctx context.Context, topic, group string) (backend.Stats, error) {
		s, err := b.good.Stats(ctx, topic, group)
		change(&s)
		return s, err
	}
}

var telling = []Saboteur{
	{"lag-is-depth", "the lag is what the topic keeps", func(b *bus) {
		tells(b, func(s *backend.Stats) { s.Lag = s.Depth })
	}},
	{"delayed-is-in-flight", "what is not settled is in flight", func(b *bus) {
		tells(b, func(s *backend.Stats) { s.InFlight, s.Delayed = s.InFlight+s.Delayed, 0 })
	}},
	{"oldest-is-now", "there is always an oldest message", func(b *bus) {
		tells(b, func(s *backend.Stats) { s.Oldest = time.Now() })
	}},
	{"members-never-leave", "members are those that ever were", func(b *bus) {
		most := int64(0)
		tells(b, func(s *backend.Stats) {
			most = max(most, s.Members)
			s.Members = most
		})
	}},
}

var managing = []Saboteur{
	{"lists-unsorted", "lists are in the order of a map", func(b *bus) { b.admin = reversed{b.good} }},
	{"lists-half", "a list is a page of it", func(b *bus) { b.admin = halved{b.good} }},
	{"deletes-in-silence", "members find out by themselves", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				if errors.Is(err, backend.ErrGone) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
	{"deletes-nothing", "what is deleted is hidden some day", func(b *bus) { b.admin = keeping{b.good} }},
	{"deletes-every-group", "a group is deleted with its like", func(b *bus) { b.admin = sweeping{b.good} }},
	{"resets-nothing", "a group goes on where it was", func(b *bus) { b.admin = resetting{b.good, nil} }},
	{"resets-to-latest", "a group that is reset skips what there is", func(b *bus) {
		latest := backend.StartLatest
		b.admin = resetting{b.good, &latest}
	}},
	{"maintains-without-end", "there is always something to maintain", func(b *bus) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			_, err := b.good.Maintain(ctx, topic, group)
			return 0, err
		}
	}},
	{"trims-unread", "a topic keeps what is recent", func(b *bus) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			settleAll(ctx, b, topic)
			return b.good.Maintain(ctx, topic, group)
		}
	}},
}

type reversed struct{ backend.Admin }

func (a reversed) Topics(ctx context.Context) ([]string, error) {
	names, err := a.Admin.Topics(ctx)
	slices.Reverse(names)
	return names, err
}

type halved struct{ backend.Admin }

func (a halved) Groups(ctx context.Context, topic string) ([]string, error) {
	names, err := a.Admin.Groups(ctx, topic)
	return names[:len(names)/2], err
}

type keeping struct{ backend.Admin }

func (keeping) DeleteTopic(context.Context, string) error         { return nil }
func (keeping) DeleteGroup(context.Context, string, string) error { return nil }

type sweeping struct{ backend.Admin }

func (a sweeping) DeleteGroup(ctx context.Context, topic, _ string) error {
	groups, err := a.Groups(ctx, topic)
	for _, g := range groups {
		err = errors.Join(err, a.Admin.DeleteGroup(ctx, topic, g))
	}
	return err
}

type resetting struct {
	backend.Admin
	start *backend.Start // nil: not at all
}

func (a resetting) ResetGroup(ctx context.Context, topic, group string, _ backend.Start) error {
	if a.start == nil {
		return nil
	}
	return a.Admin.ResetGroup(ctx, topic, group, *a.start)
}

var closing = []Saboteur{
	{"pings-for-ever", "a ping is always answered", func(b *bus) {
		b.ping = func(context.Context) error { return nil }
	}},
	{"closes-once", "what is closed cannot be closed", func(b *bus) {
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
	{"sources-never-close", "a source lives as long as its backend", func(b *bus) {
		b.joined = func(m *member) { m.shut = func() error { return nil } }
	}},
	{"never-closes", "a backend lives as long as its process", func(b *bus) {
		b.shut = func() error { return nil }
	}},
	{"deaf-to-close", "a read that waits goes on after Close", func(b *bus) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit)
				if errors.Is(err, backend.ErrClosed) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
}
