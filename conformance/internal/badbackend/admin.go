package badbackend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// managing has the saboteurs that break the promises about topics and groups.
var managing = []Saboteur{
	{Name: "lists-unsorted", Breaks: "lists are in the order of a map", sabotage: func(b *breakable) { b.good = reversed{b.good} }},
	{Name: "lists-half", Breaks: "a list is a page of it", sabotage: func(b *breakable) { b.good = halved{b.good} }},
	{Name: "deletes-in-silence", Breaks: "members find out by themselves", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				if errors.Is(err, backend.ErrGone) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ds, err
			}
		}
	}},
	{Name: "deletes-nothing", Breaks: "what is deleted is hidden some day", sabotage: func(b *breakable) { b.good = keeping{b.good} }},
	{Name: "deletes-every-group", Breaks: "a group is deleted with its like", sabotage: func(b *breakable) { b.good = sweeping{b.good} }},
	{Name: "goes-by-prefix", Breaks: "what begins with a name is part of it", sabotage: func(b *breakable) { b.good = prefixed{b.good} }},
	{Name: "deletes-without-a-class", Breaks: "a member of what is deleted gets some error", sabotage: func(b *breakable) {
		plain := func(err error) error {
			if errors.Is(err, backend.ErrGone) || errors.Is(err, backend.ErrLeaseLost) {
				return errors.New(err.Error())
			}
			return err
		}
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error { return plain(m.next.Ack(ctx, ds)) }
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				return plain(m.next.(backend.Delayer).Delay(ctx, ds))
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return plain(m.next.(backend.Extender).Extend(ctx, ds))
			}
		}
	}},
	{Name: "old-members-settle", Breaks: "an acknowledgement counts for the group that has its name", sabotage: func(b *breakable) {
		newest := map[string]backend.Source{} // by topic and group
		holdings(b, func(m *member, h holding) {
			group := m.config.Topic + " " + m.config.Group
			b.mu.Lock()
			newest[group] = m.next
			b.mu.Unlock()
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				var current []backend.Delivery
				for _, d := range ds {
					current = append(current, h.of(m, *d))
				}
				b.mu.Lock()
				src := newest[group]
				b.mu.Unlock()
				return src.Ack(ctx, backend.Lend(current))
			}
		})
	}},
	{Name: "resets-every-group", Breaks: "a group is reset with its like", sabotage: func(b *breakable) { b.good = sweeping{b.good} }},
	{Name: "resets-nothing", Breaks: "a group goes on where it was", sabotage: func(b *breakable) { b.good = resetting{b.good, nil} }},
	{Name: "resets-to-latest", Breaks: "a group that is reset skips what there is", sabotage: func(b *breakable) {
		latest := backend.StartLatest
		b.good = resetting{b.good, &latest}
	}},
	{Name: "deaf-to-reset", driver: true, Breaks: "who waits when its group is reset waits on", sabotage: func(b *breakable) {
		var resets atomic.Int64
		b.good = counting{b.good, &resets}
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				before := resets.Load()
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				if resets.Load() > before {
					<-ctx.Done()
				}
				return ds, err
			}
		}
	}},
	{Name: "maintains-without-end", Breaks: "there is always something to maintain", sabotage: func(b *breakable) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			_, err := b.good.Maintain(ctx, topic, group)
			return 0, err
		}
	}},
	{Name: "maintains-restlessly", Breaks: "maintenance goes on a moment later", sabotage: func(b *breakable) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			_, err := b.good.Maintain(ctx, topic, group)
			return time.Millisecond, err
		}
	}},
	{Name: "trims-unread", Breaks: "a topic keeps what is recent", sabotage: func(b *breakable) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			settleAll(ctx, b, topic)
			return b.good.Maintain(ctx, topic, group)
		}
	}},
	{Name: "trims-for-members", Breaks: "a topic keeps what its members need", sabotage: func(b *breakable) {
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			groups, _ := b.good.Groups(ctx, topic)
			for _, g := range groups {
				if s, err := b.good.Stats(ctx, topic, g); err == nil && s.Members == 0 {
					b.good.ResetGroup(ctx, topic, g, backend.StartLatest) //nolint:errcheck // it exists
				}
			}
			return b.good.Maintain(ctx, topic, group)
		}
	}},
	{Name: "trims-reset-groups", Breaks: "what a group has settled once is settled", sabotage: func(b *breakable) {
		next, reset := b.good, newSet(b)
		b.good = noting{next, reset}
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			groups, _ := next.Groups(ctx, topic)
			for _, g := range groups {
				if reset.has(topic + " " + g) {
					next.ResetGroup(ctx, topic, g, backend.StartLatest) //nolint:errcheck // it exists
				}
			}
			return next.Maintain(ctx, topic, group)
		}
	}},
}

type reversed struct{ good }

func (a reversed) Topics(ctx context.Context) ([]string, error) {
	names, err := a.good.Topics(ctx)
	slices.Reverse(names)
	return names, err
}

type halved struct{ good }

func (a halved) Groups(ctx context.Context, topic string) ([]string, error) {
	names, err := a.good.Groups(ctx, topic)
	return names[:len(names)/2], err
}

type keeping struct{ good }

func (keeping) DeleteTopic(context.Context, string) error         { return nil }
func (keeping) DeleteGroup(context.Context, string, string) error { return nil }

type sweeping struct{ good }

func (a sweeping) DeleteGroup(ctx context.Context, topic, _ string) error {
	groups, err := a.Groups(ctx, topic)
	for _, g := range groups {
		err = errors.Join(err, a.good.DeleteGroup(ctx, topic, g))
	}
	return err
}

func (a sweeping) ResetGroup(ctx context.Context, topic, _ string, start backend.Start) error {
	groups, err := a.Groups(ctx, topic)
	for _, g := range groups {
		err = errors.Join(err, a.good.ResetGroup(ctx, topic, g, start))
	}
	return err
}

// prefixed is a backend that takes a name for each name that begins with it.
type prefixed struct{ good }

func (a prefixed) Groups(ctx context.Context, topic string) (all []string, err error) {
	topics, err := a.good.Topics(ctx)
	for _, name := range topics {
		if strings.HasPrefix(name, topic) {
			groups, _ := a.good.Groups(ctx, name)
			all = append(all, groups...)
		}
	}
	return all, err
}

func (a prefixed) DeleteTopic(ctx context.Context, topic string) error {
	topics, err := a.good.Topics(ctx)
	for _, name := range topics {
		if strings.HasPrefix(name, topic) {
			err = errors.Join(err, a.good.DeleteTopic(ctx, name))
		}
	}
	return err
}

func (a prefixed) DeleteGroup(ctx context.Context, topic, group string) error {
	groups, err := a.good.Groups(ctx, topic)
	for _, name := range groups {
		if strings.HasPrefix(name, group) {
			err = errors.Join(err, a.good.DeleteGroup(ctx, topic, name))
		}
	}
	return err
}

type counting struct {
	good
	resets *atomic.Int64
}

func (a counting) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	a.resets.Add(1)
	return a.good.ResetGroup(ctx, topic, group, start)
}

// noting is a backend that notes which groups were reset.
type noting struct {
	good
	reset set
}

func (a noting) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	a.reset.add(topic + " " + group)
	return a.good.ResetGroup(ctx, topic, group, start)
}

type resetting struct {
	good
	start *backend.Start // start of each reset; nil: no reset happens
}

func (a resetting) ResetGroup(ctx context.Context, topic, group string, _ backend.Start) error {
	if a.start == nil {
		return nil
	}
	return a.good.ResetGroup(ctx, topic, group, *a.start)
}
