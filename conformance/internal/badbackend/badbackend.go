// Package badbackend has the saboteurs of backends. Each saboteur wraps a good backend and
// breaks one promise, and a law of the suite must fail for it.
package badbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faultbroker"
)

// A Saboteur breaks a backend in one way.
type Saboteur struct {
	Name   string // names the fault, such as "lists-unsorted"
	Breaks string // the false promise that the broken backend keeps in place of the true promise

	sabotage func(*breakable)
	driver   bool // the saboteur breaks the driver of each process, not the broker that all processes share
}

// Driver reports whether s breaks the driver and not the broker.
func (s Saboteur) Driver() bool { return s.driver }

// Wrap returns a backend that calls next and that s breaks.
func (s Saboteur) Wrap(next faultbroker.Store) faultbroker.Store {
	b := newBreakable(next)
	s.sabotage(b)
	return b
}

// All returns every saboteur, in the order of the families of laws that fail with them.
func All() []Saboteur {
	return slices.Concat(
		publishing, contents, onces, positions, renumbering, receiving, wakings, sharing, starting, acking, leasing, delaying, extending, fencing, replacing, reading, removing, telling, managing, declaring, setting, timing, lasting, pausing, taking, closing,
	)
}

// Honest is no saboteur: it breaks nothing. If a law fails with Honest, the law or
// [breakable] is wrong.
var Honest = Saboteur{"honest", "nothing", func(*breakable) {}, false}

// Find returns the saboteur of that name.
func Find(name string) (Saboteur, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Saboteur) bool { return s.Name == name })
	if i < 0 {
		return Saboteur{}, false
	}
	return all[i], true
}

// good is the backend that a breakable wraps.
type good = faultbroker.Store

// A breakable is a backend that wraps a good backend. Its methods call the functions in its
// fields, which a saboteur may replace. For a verb without a field, a saboteur replaces good
// with a wrapper of it, such as [shrugging].
type breakable struct {
	good
	publish  func(ctx context.Context, ms []*backend.Message) error
	attach   func(ctx context.Context, c backend.Config) (backend.Source, error)
	shut     func() error
	maintain func(ctx context.Context, topic, group string) (time.Duration, error)
	read     func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error)
	remove   func(ctx context.Context, topic string, positions []string) error
	stats    func(ctx context.Context, topic, group string) (backend.Stats, error)
	ping     func(ctx context.Context) error
	declare  func(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error)
	joined   func(*member) // called with each member that attaches; it may replace methods of the member

	mu sync.Mutex // guards the variables of saboteurs
}

func newBreakable(next good) *breakable {
	b := &breakable{
		good: next, publish: next.Publish, shut: next.Close, maintain: next.Maintain, read: next.Read, remove: next.Remove,
		stats: next.Stats, ping: next.Ping, declare: next.Declare, joined: func(*member) {},
	}
	b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
		src, err := next.Attach(ctx, c)
		if err != nil {
			return nil, err
		}
		m := newMember(src, c)
		b.joined(m)
		return m, nil
	}
	return b
}

func (b *breakable) Publish(ctx context.Context, ms []*backend.Message) error {
	return b.publish(ctx, ms)
}

func (b *breakable) Attach(ctx context.Context, c backend.Config) (backend.Source, error) {
	return b.attach(ctx, c)
}

func (b *breakable) Close() error { return b.shut() }

func (b *breakable) Maintain(ctx context.Context, topic, group string) (time.Duration, error) {
	return b.maintain(ctx, topic, group)
}

func (b *breakable) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	return b.read(ctx, topic, from, limit)
}

func (b *breakable) Remove(ctx context.Context, topic string, positions []string) error {
	return b.remove(ctx, topic, positions)
}

func (b *breakable) Stats(ctx context.Context, topic, group string) (backend.Stats, error) {
	return b.stats(ctx, topic, group)
}

func (b *breakable) Ping(ctx context.Context) error { return b.ping(ctx) }

func (b *breakable) Declare(ctx context.Context, topic string, d backend.Declaration) (backend.TopicSettings, error) {
	return b.declare(ctx, topic, d)
}

// A member is a source that wraps the source next. Its methods call the functions in its
// fields, which a saboteur may replace.
type member struct {
	config  backend.Config
	next    backend.Source
	receive func(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error)
	ack     func(ctx context.Context, ds []*backend.Delivery) error
	delay   func(ctx context.Context, ds []backend.Delayed) error
	extend  func(ctx context.Context, ds []*backend.Delivery) error
	shut    func() error
}

func newMember(next backend.Source, c backend.Config) *member {
	return &member{
		config: c, next: next, receive: next.Receive, ack: next.Ack, shut: next.Close,
		delay: next.(backend.Delayer).Delay, extend: next.(backend.Extender).Extend,
	}
}

func (m *member) Receive(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
	return m.receive(ctx, max, maxBytes)
}

func (m *member) Ack(ctx context.Context, ds []*backend.Delivery) error { return m.ack(ctx, ds) }
func (m *member) Delay(ctx context.Context, ds []backend.Delayed) error { return m.delay(ctx, ds) }

func (m *member) Extend(ctx context.Context, ds []*backend.Delivery) error { return m.extend(ctx, ds) }
func (m *member) Close() error                                             { return m.shut() }

// published lets a saboteur change a copy of each message before it is stored.
func published(b *breakable, change func(*backend.Message)) {
	b.publish = func(ctx context.Context, ms []*backend.Message) error {
		changed := make([]*backend.Message, len(ms))
		for i := range ms {
			m := *ms[i]
			change(&m)
			changed[i] = &m
		}
		err := b.good.Publish(ctx, changed)
		for i := range ms {
			ms[i].Position, ms[i].Duplicate = changed[i].Position, changed[i].Duplicate
		}
		return err
	}
}

// delivered lets a saboteur change the result of each Receive.
func delivered(b *breakable, change func(m *member, ds []backend.Delivery) []backend.Delivery) {
	b.joined = func(m *member) {
		m.receive = func(ctx context.Context, max int, maxBytes int64) ([]backend.Delivery, error) {
			ds, err := m.next.Receive(ctx, max, maxBytes)
			return change(m, ds), err
		}
	}
}

// each lets a saboteur change each delivery.
func each(b *breakable, change func(d *backend.Delivery)) {
	delivered(b, func(_ *member, ds []backend.Delivery) []backend.Delivery {
		for i := range ds {
			change(&ds[i])
		}
		return ds
	})
}

// joining lets a saboteur change the config of each member.
func joining(b *breakable, change func(*backend.Config)) {
	attach := b.attach
	b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
		change(&c)
		return attach(ctx, c)
	}
}
