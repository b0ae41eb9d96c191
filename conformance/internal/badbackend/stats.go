package badbackend

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// tells lets a saboteur change the result of Stats.
func tells(b *breakable, change func(*backend.Stats)) {
	b.stats = func(ctx context.Context, topic, group string) (backend.Stats, error) {
		s, err := b.good.Stats(ctx, topic, group)
		change(&s)
		return s, err
	}
}

// expiring lets a saboteur change the result of Stats when no lease of the last Receive has
// time left.
func expiring(b *breakable, change func(*backend.Stats)) {
	var end time.Time
	delivered(b, func(m *member, ds []backend.Delivery) []backend.Delivery {
		b.mu.Lock()
		defer b.mu.Unlock()
		end = time.Now().Add(m.config.Lease)
		return ds
	})
	tells(b, func(s *backend.Stats) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if time.Now().After(end) {
			change(s)
		}
	})
}

var telling = []Saboteur{
	{Name: "lag-is-depth", Breaks: "the lag is what the topic keeps", sabotage: func(b *breakable) {
		tells(b, func(s *backend.Stats) { s.Lag = s.Depth })
	}},
	{Name: "delayed-is-in-flight", Breaks: "what is not settled is in flight", sabotage: func(b *breakable) {
		tells(b, func(s *backend.Stats) { s.InFlight, s.Delayed = s.InFlight+s.Delayed, 0 })
	}},
	{Name: "unacked-is-in-flight", Breaks: "what was given back is with nobody", sabotage: func(b *breakable) {
		tells(b, func(s *backend.Stats) { s.Unacked = s.InFlight })
	}},
	{Name: "clock-ahead", Breaks: "any clock will do", sabotage: func(b *breakable) {
		b.good = wrongClock{b.good, func(t time.Time) time.Time { return t.Add(time.Minute) }}
	}},
	{Name: "clock-behind", Breaks: "a clock may be late", sabotage: func(b *breakable) {
		b.good = wrongClock{b.good, func(t time.Time) time.Time { return t.Add(-time.Second) }}
	}},
	{Name: "stopped-clock", Breaks: "the time is asked once", sabotage: func(b *breakable) {
		var first time.Time
		b.good = wrongClock{b.good, func(t time.Time) time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			if first.IsZero() {
				first = t
			}
			return first
		}}
	}},
	{Name: "oldest-is-now", Breaks: "there is always an oldest message", sabotage: func(b *breakable) {
		tells(b, func(s *backend.Stats) { s.Oldest = time.Now() })
	}},
	{Name: "oldest-never-moves", Breaks: "the oldest message of a group is its first", sabotage: func(b *breakable) {
		var first time.Time
		tells(b, func(s *backend.Stats) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if first.IsZero() {
				first = s.Oldest
			}
			if !s.Oldest.IsZero() {
				s.Oldest = first
			}
		})
	}},
	{Name: "oldest-is-unread", Breaks: "what was read is not old", sabotage: func(b *breakable) {
		tells(b, func(s *backend.Stats) {
			if s.Lag == 0 {
				s.Oldest = time.Time{}
			}
		})
	}},
	{Name: "forgets-expired", Breaks: "what is due again is with nobody", sabotage: func(b *breakable) {
		expiring(b, func(s *backend.Stats) { s.Unacked, s.InFlight, s.Delayed = 0, 0, 0 })
	}},
	{Name: "expired-is-lag", Breaks: "what is due again is like new", sabotage: func(b *breakable) {
		expiring(b, func(s *backend.Stats) { s.Lag, s.Unacked, s.InFlight, s.Delayed = s.Lag+s.Unacked, 0, 0, 0 })
	}},
	{Name: "lag-ignores-start", Breaks: "what a group did not get it has still to get", sabotage: func(b *breakable) {
		received := newSet(b)
		each(b, func(d *backend.Delivery) { received.add(d.Position) })
		tells(b, func(s *backend.Stats) { s.Lag = s.Depth - int64(len(received.seen)) })
	}},
	{Name: "depth-counts-removes", Breaks: "each removal is a message less", sabotage: func(b *breakable) {
		var published, removed int
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			b.mu.Lock()
			published += len(ms)
			b.mu.Unlock()
			return b.good.Publish(ctx, ms)
		}
		b.remove = func(ctx context.Context, topic string, positions []string) error {
			b.mu.Lock()
			removed += len(positions)
			b.mu.Unlock()
			return b.good.Remove(ctx, topic, positions)
		}
		tells(b, func(s *backend.Stats) {
			b.mu.Lock()
			defer b.mu.Unlock()
			s.Depth = max(0, int64(published-removed))
		})
	}},
	{Name: "members-never-leave", Breaks: "members are those that ever were", sabotage: func(b *breakable) {
		ever := map[string]int64{}
		b.joined = func(m *member) {
			b.mu.Lock()
			defer b.mu.Unlock()
			ever[m.config.Topic+" "+m.config.Group]++
		}
		b.stats = func(ctx context.Context, topic, group string) (backend.Stats, error) {
			s, err := b.good.Stats(ctx, topic, group)
			b.mu.Lock()
			defer b.mu.Unlock()
			s.Members = ever[topic+" "+group]
			return s, err
		}
	}},
	{Name: "members-fall-asleep", Breaks: "a member that gets nothing is none", sabotage: func(b *breakable) {
		var last time.Time
		var lease time.Duration
		b.joined = func(m *member) {
			b.mu.Lock()
			defer b.mu.Unlock()
			last, lease = time.Now(), m.config.Lease
		}
		tells(b, func(s *backend.Stats) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if time.Since(last) > lease {
				s.Members = 0
			}
		})
	}},
	{Name: "members-of-own-process", driver: true, Breaks: "a process knows its members", sabotage: func(b *breakable) {
		var open atomic.Int64
		b.joined = func(m *member) {
			open.Add(1)
			leave := sync.OnceFunc(func() { open.Add(-1) })
			m.shut = func() error {
				leave()
				return m.next.Close()
			}
		}
		tells(b, func(s *backend.Stats) { s.Members = open.Load() })
	}},
	{Name: "members-leave-twice", Breaks: "each Close is a member less", sabotage: func(b *breakable) {
		var twice atomic.Int64
		b.joined = func(m *member) {
			closed := false
			m.shut = func() error {
				b.mu.Lock()
				defer b.mu.Unlock()
				if closed {
					twice.Add(1)
				}
				closed = true
				return m.next.Close()
			}
		}
		tells(b, func(s *backend.Stats) { s.Members -= twice.Load() })
	}},
}

// A wrongClock is a backend whose Now tells another time.
type wrongClock struct {
	good
	change func(time.Time) time.Time
}

func (w wrongClock) Now(ctx context.Context, topic string) (time.Time, error) {
	t, err := w.good.Now(ctx, topic)
	return w.change(t), err
}
