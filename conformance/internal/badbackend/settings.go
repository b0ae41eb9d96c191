package badbackend

import (
	"context"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

type settings = backend.TopicSettings

// declared lets a saboteur change each declaration.
func declared(b *breakable, change func(topic string, d *backend.Declaration)) {
	declare := b.declare
	b.declare = func(ctx context.Context, topic string, d backend.Declaration) (settings, error) {
		change(topic, &d)
		return declare(ctx, topic, d)
	}
}

// setting has the saboteurs that break the promises about the settings of topics.
var setting = []Saboteur{
	{Name: "keeps-nothing", Breaks: "a setting is a wish", sabotage: func(b *breakable) {
		declare := b.declare
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (settings, error) {
			_, err := declare(ctx, topic, backend.Declaration{})
			return d.Settings, err
		}
	}},
	{Name: "keeps-for-itself", driver: true, Breaks: "each process has its own settings", sabotage: func(b *breakable) {
		declare, own := b.declare, map[string]settings{}
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (settings, error) {
			_, err := declare(ctx, topic, backend.Declaration{})
			b.mu.Lock()
			defer b.mu.Unlock()
			if d.Replace || own[topic] == (settings{}) {
				own[topic] = d.Settings
			}
			return own[topic], err
		}
	}},
	{Name: "keeps-the-last", Breaks: "who declares last is right", sabotage: func(b *breakable) {
		declared(b, func(_ string, d *backend.Declaration) { d.Replace = d.Settings != settings{} })
	}},
	{Name: "keeps-the-first", Breaks: "settings are for ever", sabotage: func(b *breakable) {
		declared(b, func(_ string, d *backend.Declaration) { d.Replace = false })
	}},
	{Name: "keeps-for-the-next-topic", Breaks: "settings belong to a name", sabotage: func(b *breakable) {
		next := b.good
		b.good = altered{good: next, deleteTopic: func(ctx context.Context, topic string) error {
			has, err := next.Declare(ctx, topic, backend.Declaration{})
			if err == nil {
				err = next.DeleteTopic(ctx, topic)
			}
			if err == nil {
				_, err = next.Declare(ctx, topic, backend.Declaration{Settings: has})
			}
			return err
		}}
	}},
	{Name: "keeps-no-longer", Breaks: "a message is kept for a time, and no longer", sabotage: func(b *breakable) {
		maintain := b.maintain
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			has, _ := b.good.Declare(ctx, topic, backend.Declaration{})
			young, _ := b.good.Read(ctx, topic, backend.StartAt(time.Now().Add(-has.Keep)), 1<<20)
			all, _ := b.good.Read(ctx, topic, backend.StartEarliest, 1<<20)
			remove(ctx, b, topic, all[:len(all)-len(young)])
			return maintain(ctx, topic, group)
		}
	}},
	{Name: "bounds-nothing", Breaks: "a bound is a wish", sabotage: func(b *breakable) {
		declare := b.declare
		b.declare = func(ctx context.Context, topic string, d backend.Declaration) (settings, error) {
			wish := d.Settings
			d.Settings.MaxMessages, d.Settings.MaxBytes = 0, 0
			_, err := declare(ctx, topic, d)
			return wish, err
		}
	}},
	{Name: "bounds-by-loss", Breaks: "in a full topic the oldest message goes", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			if err == nil {
				return nil
			}
			all, _ := b.good.Read(ctx, ms[0].Topic, backend.StartEarliest, 1<<20)
			remove(ctx, b, ms[0].Topic, all[:min(len(all), len(ms))])
			return b.good.Publish(ctx, ms)
		}
	}},
	{Name: "bounds-without-room", Breaks: "a settled message takes room as long as it is kept", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			kept, _ := b.good.Read(ctx, ms[0].Topic, backend.StartEarliest, 1<<20)
			if len(kept)+len(ms) > 10 { // the laws have room for ten
				return backend.ErrFull
			}
			return b.good.Publish(ctx, ms)
		}
	}},
	{Name: "takes-any-setting", Breaks: "a negative setting is none", sabotage: func(b *breakable) {
		declared(b, func(_ string, d *backend.Declaration) {
			s := &d.Settings
			s.Keep, s.MaxMessages, s.MaxBytes = max(s.Keep, 0), max(s.MaxMessages, 0), max(s.MaxBytes, 0)
		})
	}},
}

func remove(ctx context.Context, b *breakable, topic string, ms []backend.Message) {
	var positions []string
	for i := range ms {
		positions = append(positions, ms[i].Position)
	}
	b.good.Remove(ctx, topic, positions) //nolint:errcheck // the topic exists
}

// timing has the saboteurs that break the promises about starts at a time.
var timing = []Saboteur{
	{Name: "starts-at-the-end", Breaks: "a time is now", sabotage: func(b *breakable) { startsAt(b, backend.StartLatest) }},
	{Name: "starts-at-the-beginning", Breaks: "a time is long ago", sabotage: func(b *breakable) { startsAt(b, backend.StartEarliest) }},
}

// startsAt puts start in the place of each time.
func startsAt(b *breakable, start backend.Start) {
	change := func(s backend.Start) backend.Start {
		if _, ok := s.At(); ok {
			return start
		}
		return s
	}
	next := b.good
	joining(b, func(c *backend.Config) { c.Start = change(c.Start) })
	b.read = func(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
		return next.Read(ctx, topic, change(from), limit)
	}
	b.good = altered{good: next, resetGroup: func(ctx context.Context, topic, group string, start backend.Start) error {
		return next.ResetGroup(ctx, topic, group, change(start))
	}}
}

// An altered is a backend with other methods in the place of some. A nil function changes nothing.
type altered struct {
	good
	deleteTopic func(ctx context.Context, topic string) error
	deleteGroup func(ctx context.Context, topic, group string) error
	resetGroup  func(ctx context.Context, topic, group string, start backend.Start) error
	pause       func(ctx context.Context, topic, group string, p backend.Pause) error
	resume      func(ctx context.Context, topic, group string) error
	settle      func(ctx context.Context, topic, group, position string) (bool, error)
	settled     func(ctx context.Context, topic, group string, positions []string) ([]bool, error)
}

func (a altered) DeleteTopic(ctx context.Context, topic string) error {
	if a.deleteTopic == nil {
		return a.good.DeleteTopic(ctx, topic)
	}
	return a.deleteTopic(ctx, topic)
}

func (a altered) DeleteGroup(ctx context.Context, topic, group string) error {
	if a.deleteGroup == nil {
		return a.good.DeleteGroup(ctx, topic, group)
	}
	return a.deleteGroup(ctx, topic, group)
}

func (a altered) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	if a.resetGroup == nil {
		return a.good.ResetGroup(ctx, topic, group, start)
	}
	return a.resetGroup(ctx, topic, group, start)
}

func (a altered) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	if a.pause == nil {
		return a.good.Pause(ctx, topic, group, p)
	}
	return a.pause(ctx, topic, group, p)
}

func (a altered) Resume(ctx context.Context, topic, group string) error {
	if a.resume == nil {
		return a.good.Resume(ctx, topic, group)
	}
	return a.resume(ctx, topic, group)
}

func (a altered) Settle(ctx context.Context, topic, group, position string) (bool, error) {
	if a.settle == nil {
		return a.good.Settle(ctx, topic, group, position)
	}
	return a.settle(ctx, topic, group, position)
}

func (a altered) Settled(ctx context.Context, topic, group string, positions []string) ([]bool, error) {
	if a.settled == nil {
		return a.good.Settled(ctx, topic, group, positions)
	}
	return a.settled(ctx, topic, group, positions)
}

// lasting has the saboteurs that break the promises about ephemeral groups.
var lasting = []Saboteur{
	{Name: "ephemeral-stays", Breaks: "a group is for ever", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Ephemeral = false })
	}},
	{Name: "ephemeral-ends-with-one", Breaks: "a member that leaves takes its group along", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.shut = func() error {
				err := m.next.Close()
				if m.config.Ephemeral {
					b.good.DeleteGroup(context.Background(), m.config.Topic, m.config.Group) //nolint:errcheck,forbidigo // it may be gone; Close has no context
				}
				return err
			}
		}
	}},
	{Name: "ephemeral-outlives-its-members", Breaks: "a member that is not heard of is shy", sabotage: func(b *breakable) {
		b.maintain = func(context.Context, string, string) (time.Duration, error) { return 5 * time.Second, nil }
	}},
	{Name: "ephemeral-ends-when-idle", Breaks: "a member that receives nothing is dead", sabotage: func(b *breakable) {
		var members []*member
		received := map[*member]time.Time{}
		b.joined = func(m *member) {
			b.mu.Lock()
			defer b.mu.Unlock()
			members, received[m] = append(members, m), time.Now()
		}
		maintain := b.maintain
		b.maintain = func(ctx context.Context, topic, group string) (time.Duration, error) {
			b.mu.Lock()
			all := slices.Clone(members)
			b.mu.Unlock()
			for _, m := range all {
				if m.config.Ephemeral && time.Since(received[m]) > 10*m.config.Lease {
					b.good.DeleteGroup(ctx, topic, group) //nolint:errcheck // it may be gone
				}
			}
			return maintain(ctx, topic, group)
		}
	}},
	{Name: "ephemeral-by-the-latest", Breaks: "a group is what its latest member says", sabotage: func(b *breakable) {
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			src, err := attach(ctx, c)
			if err != nil {
				c.Ephemeral = !c.Ephemeral
				return attach(ctx, c)
			}
			return src, nil
		}
	}},
}
