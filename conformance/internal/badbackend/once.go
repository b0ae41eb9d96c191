package badbackend

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// one makes b publish the messages of a batch one by one, by the function publish.
func one(b *breakable, publish func(ctx context.Context, m *backend.Message) error) {
	b.publish = func(ctx context.Context, ms []*backend.Message) error {
		errs := make([]error, len(ms))
		for i, m := range ms {
			errs[i] = publish(ctx, m)
		}
		return backend.AsBatchError(errs)
	}
}

// A set remembers strings. Its method add returns true if the string is new.
type set struct {
	b    *breakable
	seen map[string]bool
}

func newSet(b *breakable) set { return set{b, map[string]bool{}} }

func (s set) has(text string) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.seen[text]
}

func (s set) add(text string) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	old := s.seen[text]
	s.seen[text] = true
	return !old
}

func (s set) forget(text string) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	delete(s.seen, text)
}

// plain publishes m without Once. Then it restores the field Once of m.
func (b *breakable) plain(ctx context.Context, m *backend.Message) error {
	once := m.Once
	m.Once = false
	defer func() { m.Once = once }()
	return b.good.Publish(ctx, []*backend.Message{m})
}

var onces = []Saboteur{
	{Name: "forgets-once", Breaks: "duplicates are the receiver's affair", sabotage: func(b *breakable) { one(b, b.plain) }},
	{Name: "duplicates-in-silence", Breaks: "a duplicate is not stored, and that is that", sabotage: func(b *breakable) {
		one(b, func(ctx context.Context, m *backend.Message) error {
			err := b.good.Publish(ctx, []*backend.Message{m})
			m.Duplicate = false
			return err
		})
	}},
	{Name: "once-over-topics", Breaks: "an ID is unique in all topics", sabotage: func(b *breakable) {
		seen := newSet(b)
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Once && !seen.add(m.ID) {
				m.Duplicate = true
				return nil
			}
			return b.plain(ctx, m)
		})
	}},
	{Name: "once-unasked", Breaks: "an ID is stored once", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) { m.Once = true })
	}},
	{Name: "once-by-id", Breaks: "Once is about the ID", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) { m.OnceKey = "" })
	}},
	{Name: "once-by-both", Breaks: "the ID is part of the key", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) {
			if m.OnceKey != "" {
				m.OnceKey = m.ID + "/" + m.OnceKey
			}
		})
	}},
	{Name: "keeps-once-key", Breaks: "all fields of a message are stored", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.OnceKey = d.ID })
	}},
	{Name: "once-in-two-steps", Breaks: "an ID is looked up, and then stored", sabotage: func(b *breakable) {
		seen := newSet(b)
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Once && seen.has(m.ID) {
				m.Duplicate = true
				return nil
			}
			time.Sleep(time.Millisecond)
			seen.add(m.ID)
			return b.plain(ctx, m)
		})
	}},
	{Name: "once-for-ever", Breaks: "an ID is never forgotten", sabotage: func(b *breakable) {
		seen := newSet(b)
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Once && !seen.add(m.Topic+" "+m.ID) {
				m.Duplicate = true
				return nil
			}
			return b.plain(ctx, m)
		})
	}},
	{Name: "once-slides", Breaks: "a duplicate begins a new window", sabotage: func(b *breakable) {
		until := map[string]time.Time{} // by topic and ID
		one(b, func(ctx context.Context, m *backend.Message) error {
			if !m.Once {
				return b.plain(ctx, m)
			}
			b.mu.Lock()
			m.Duplicate = time.Now().Before(until[m.Topic+" "+m.ID])
			until[m.Topic+" "+m.ID] = time.Now().Add(backend.LimitsOf(b.good).OnceWindow)
			b.mu.Unlock()
			if m.Duplicate {
				m.Position = ""
				return nil
			}
			return b.plain(ctx, m)
		})
	}},
	{Name: "once-by-reading", Breaks: "an ID is free if the topic has no message with it", sabotage: func(b *breakable) {
		one(b, func(ctx context.Context, m *backend.Message) error {
			kept, _ := b.good.Read(ctx, m.Topic, "", 1<<20)
			i := slices.IndexFunc(kept, func(k backend.Message) bool { return k.ID == m.ID })
			if m.Once && i >= 0 {
				m.Position, m.Duplicate = kept[i].Position, true
				return nil
			}
			return b.plain(ctx, m)
		})
	}},
	{Name: "maintain-forgets-once", Breaks: "Maintain clears the IDs", sabotage: func(b *breakable) {
		var forgotten atomic.Bool
		one(b, func(ctx context.Context, m *backend.Message) error {
			if forgotten.Load() {
				return b.plain(ctx, m)
			}
			return b.good.Publish(ctx, []*backend.Message{m})
		})
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			forgotten.Store(true)
			return b.good.Maintain(ctx, topic, group)
		}
	}},
	{Name: "once-per-process", driver: true, Breaks: "each process remembers its own IDs", sabotage: func(b *breakable) {
		seen := newSet(b)
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Once && !seen.add(m.Topic+" "+m.ID) {
				m.Position, m.Duplicate = "", true
				return nil
			}
			return b.plain(ctx, m)
		})
	}},
	{Name: "keeps-duplicate-flag", Breaks: "who publishes a message again clears its fields", sabotage: func(b *breakable) {
		one(b, func(ctx context.Context, m *backend.Message) error {
			was := m.Duplicate
			err := b.good.Publish(ctx, []*backend.Message{m})
			m.Duplicate = m.Duplicate || was
			return err
		})
	}},
	{Name: "marks-before-storing", Breaks: "an ID is marked, and then stored", sabotage: func(b *breakable) {
		seen := newSet(b)
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Once && !seen.add(m.Topic+" "+m.ID) {
				m.Duplicate = true
				return nil
			}
			return b.good.Publish(ctx, []*backend.Message{m})
		})
	}},
}

var positions = []Saboteur{
	{Name: "position-before-commit", Breaks: "a message has its number when Publish begins", sabotage: func(b *breakable) {
		count, numbers := 0, map[string]int{} // the number of each message, by ID
		one(b, func(ctx context.Context, m *backend.Message) error {
			b.mu.Lock()
			count++
			n := count
			numbers[m.ID] = n
			b.mu.Unlock()
			time.Sleep(time.Duration(n%4) * time.Millisecond)
			return b.good.Publish(ctx, []*backend.Message{m})
		})
		cursor := 0
		delivered(b, func(m *member, ds []backend.Delivery) []backend.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.DeleteFunc(ds, func(d backend.Delivery) bool {
				passed := numbers[d.ID] < cursor
				cursor = max(cursor, numbers[d.ID])
				return passed
			})
		})
	}},
	{Name: "decimal-positions", Breaks: "positions are numbers", sabotage: func(b *breakable) {
		shown := func(position string) string {
			n, _ := strconv.ParseUint(position, 16, 64)
			return strconv.FormatUint(n, 10)
		}
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			for _, m := range ms {
				m.Position = shown(m.Position)
			}
			return err
		}
		each(b, func(d *backend.Delivery) { d.Position = shown(d.Position) })
	}},
	{Name: "position-per-receipt", Breaks: "a position is that of a receipt", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) {
			if d.Attempt > 1 {
				d.Position += fmt.Sprintf("-%d", d.Attempt)
			}
		})
	}},
	{Name: "no-position", Breaks: "a position is known to receivers", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			for _, m := range ms {
				m.Position = ""
			}
			return err
		}
	}},
}
