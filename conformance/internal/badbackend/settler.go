package badbackend

import (
	"context"
	"errors"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// taking has the saboteurs that break the promises of [backend.Settler].
var taking = []Saboteur{
	{Name: "settles-nothing", Breaks: "only members settle messages", sabotage: func(b *breakable) {
		settles(b, func(ctx context.Context, topic, group, _ string, _ settleFunc) (bool, error) {
			_, err := b.good.Stats(ctx, topic, group)
			return true, err
		})
	}},
	{Name: "settles-what-is-held", Breaks: "a delayed message is nobody's, so nobody can settle it", sabotage: func(b *breakable) {
		delayed := newSet(b)
		b.joined = func(m *member) {
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				for i := range ds {
					delayed.add(ds[i].Position)
				}
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
		}
		settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
			if delayed.has(position) {
				return true, nil
			}
			return settle(position)
		})
	}},
	{Name: "settles-below", Breaks: "a group that is behind a message is behind the messages before it", sabotage: func(b *breakable) {
		settles(b, func(ctx context.Context, topic, _, position string, settle settleFunc) (bool, error) {
			ms, err := b.good.Read(ctx, topic, backend.StartEarliest, 1<<20)
			for i := range ms {
				if ms[i].Position < position {
					settle(ms[i].Position) //nolint:errcheck // the group may have settled it
				}
			}
			had, err2 := settle(position)
			return had, errors.Join(err, err2)
		})
	}},
	{Name: "settles-every-group", Breaks: "a message that is settled is settled", sabotage: func(b *breakable) {
		next := b.good
		b.good = altered{good: next, settle: func(ctx context.Context, topic, group, position string) (bool, error) {
			groups, _ := next.Groups(ctx, topic) // the last call below has the same error
			for _, other := range groups {
				next.Settle(ctx, topic, other, position) //nolint:errcheck // likewise
			}
			return next.Settle(ctx, topic, group, position)
		}}
	}},
	{Name: "settles-in-secret", Breaks: "a holder holds until its lease has expired", sabotage: func(b *breakable) {
		taken := settled(b)
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error { return m.next.Ack(ctx, others(taken, ds)) }
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				return m.next.(backend.Extender).Extend(ctx, others(taken, ds))
			}
			m.delay = func(ctx context.Context, ds []backend.Delayed) error {
				ds = slices.DeleteFunc(slices.Clone(ds), func(d backend.Delayed) bool { return taken.has(d.Position) })
				return m.next.(backend.Delayer).Delay(ctx, ds)
			}
		}
	}},
	{Name: "settles-until-the-holder-calls", Breaks: "the last word about a message is its holder's", sabotage: func(b *breakable) {
		hidden := newSet(b)
		settles(b, func(_ context.Context, _, _, position string, _ settleFunc) (bool, error) {
			hidden.add(position)
			return true, nil
		})
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, bytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, bytes)
				return slices.DeleteFunc(ds, func(d backend.Delivery) bool { return hidden.has(d.Position) }), err
			}
			m.extend = func(ctx context.Context, ds []*backend.Delivery) error {
				for _, d := range ds {
					hidden.forget(d.Position)
				}
				return m.next.(backend.Extender).Extend(ctx, ds)
			}
		}
	}},
	{Name: "settles-without-saying", Breaks: "an operator knows what a group has", sabotage: func(b *breakable) {
		settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
			_, err := settle(position)
			return false, err
		})
	}},
	{Name: "settles-once", Breaks: "a message that is settled cannot be settled", sabotage: func(b *breakable) {
		done := newSet(b)
		settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
			if !done.add(position) {
				return false, backend.ErrGone
			}
			return settle(position)
		})
	}},
	{Name: "knows-nothing-settled", Breaks: "what a group has settled is its affair", sabotage: func(b *breakable) {
		tellsSettled(b, func(settled []bool) { clear(settled) })
	}},
	{Name: "takes-all-for-settled", Breaks: "a message that a group does not hold now is settled", sabotage: func(b *breakable) {
		tellsSettled(b, func(settled []bool) {
			for i := range settled {
				settled[i] = true
			}
		})
	}},
	{Name: "settles-and-denies", driver: true, Breaks: "a broker that does not answer has done nothing", sabotage: func(b *breakable) {
		settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
			had, err := settle(position)
			if errors.Is(err, backend.ErrUnknownOutcome) {
				err = backend.ErrUnavailable
			}
			return had, err
		})
	}},
	{Name: "settles-ahead", Breaks: "a message can be settled before it is received", sabotage: func(b *breakable) {
		settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
			had, err := settle(position)
			if errors.Is(err, backend.ErrRefused) {
				return true, nil
			}
			return had, err
		})
	}},
}

// A settleFunc is the Settle of a backend, for the topic and group of a call.
type settleFunc func(position string) (had bool, err error)

// settles lets a saboteur replace each Settle.
func settles(b *breakable, replace func(ctx context.Context, topic, group, position string, settle settleFunc) (bool, error)) {
	next := b.good
	b.good = altered{good: next, settle: func(ctx context.Context, topic, group, position string) (bool, error) {
		return replace(ctx, topic, group, position, func(position string) (bool, error) { return next.Settle(ctx, topic, group, position) })
	}}
}

// tellsSettled lets a saboteur change each answer of Settled.
func tellsSettled(b *breakable, change func(settled []bool)) {
	next := b.good
	b.good = altered{good: next, settled: func(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
		settled, err := next.Settled(ctx, topic, group, positions)
		change(settled)
		return settled, err
	}}
}

// settled returns the set of the positions that operators have settled.
func settled(b *breakable) set {
	taken := newSet(b)
	settles(b, func(_ context.Context, _, _, position string, settle settleFunc) (bool, error) {
		taken.add(position)
		return settle(position)
	})
	return taken
}

// others returns the deliveries of ds whose positions are not in taken.
func others(taken set, ds []*backend.Delivery) []*backend.Delivery {
	return slices.DeleteFunc(slices.Clone(ds), func(d *backend.Delivery) bool { return taken.has(d.Position) })
}
