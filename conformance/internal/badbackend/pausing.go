package badbackend

import (
	"context"
	"errors"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// pausing has the saboteurs that break the promises about pauses.
var pausing = []Saboteur{
	{Name: "pauses-nothing", Breaks: "a pause is a wish", sabotage: func(b *breakable) {
		next := b.good
		b.good = altered{good: next, pause: func(ctx context.Context, topic, group string, _ backend.Pause) error {
			_, err := next.Paused(ctx, topic, group)
			return err
		}}
	}},
	{Name: "pauses-one-process", driver: true, Breaks: "a pause is for the process that asks for it", sabotage: func(b *breakable) {
		next, mine := b.good, newSet(b)
		var p backend.Pause
		b.good = altered{good: next, pause: func(_ context.Context, topic, group string, of backend.Pause) error {
			mine.add(topic + "/" + group)
			p = of
			p.Since = time.Now()
			return nil
		}}
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, max int, bytes int64) ([]backend.Delivery, error) {
				if mine.has(m.config.Topic + "/" + m.config.Group) {
					return nil, &backend.PausedError{Pause: p}
				}
				return m.next.Receive(ctx, max, bytes)
			}
		}
	}},
	{Name: "pauses-without-words", Breaks: "a pause is a pause, whoever asked for it", sabotage: func(b *breakable) {
		pauses(b, func(p *backend.Pause) { p.By, p.Why = "", "" })
	}},
	{Name: "pauses-for-ever", Breaks: "a pause ends when somebody ends it", sabotage: func(b *breakable) {
		pauses(b, func(p *backend.Pause) { p.Until = time.Time{} })
	}},
	{Name: "pauses-in-the-past", Breaks: "a pause is a pause, whenever it ends", sabotage: func(b *breakable) {
		pauses(b, func(p *backend.Pause) {
			if !p.Until.IsZero() && time.Until(p.Until) < 0 {
				p.Until = time.Now().Add(time.Hour)
			}
		})
	}},
	{Name: "resumes-nothing", Breaks: "what was paused once is paused", sabotage: func(b *breakable) {
		b.good = altered{good: b.good, resume: func(context.Context, string, string) error { return nil }}
	}},
	{Name: "pauses-settling", Breaks: "in a pause nothing is done", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				if p, _ := b.good.Paused(ctx, m.config.Topic, m.config.Group); !p.Since.IsZero() {
					return nil
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "pauses-the-topic", Breaks: "a pause is for all who read a topic", sabotage: func(b *breakable) {
		next := b.good
		b.good = altered{good: next, pause: func(ctx context.Context, topic, _ string, p backend.Pause) error {
			groups, err := next.Groups(ctx, topic)
			for _, group := range groups {
				err = errors.Join(err, next.Pause(ctx, topic, group, p))
			}
			return err
		}}
	}},
	{Name: "reset-resumes", Breaks: "a group that begins anew begins", sabotage: func(b *breakable) {
		next := b.good
		b.good = altered{good: next, resetGroup: func(ctx context.Context, topic, group string, start backend.Start) error {
			return errors.Join(next.ResetGroup(ctx, topic, group, start), next.Resume(ctx, topic, group))
		}}
	}},
	{Name: "pauses-for-the-next-group", Breaks: "a pause is for a name", sabotage: func(b *breakable) {
		next, attach := b.good, b.attach
		left := map[string]backend.Pause{}
		b.good = altered{good: next, deleteGroup: func(ctx context.Context, topic, group string) error {
			p, err := next.Paused(ctx, topic, group)
			b.mu.Lock()
			left[topic+"/"+group] = p
			b.mu.Unlock()
			return errors.Join(err, next.DeleteGroup(ctx, topic, group))
		}}
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			src, err := attach(ctx, c)
			b.mu.Lock()
			p := left[c.Topic+"/"+c.Group]
			b.mu.Unlock()
			if err == nil && !p.Since.IsZero() {
				err = next.Pause(ctx, c.Topic, c.Group, p)
			}
			return src, err
		}
	}},
}

// pauses lets a saboteur change each pause.
func pauses(b *breakable, change func(*backend.Pause)) {
	next := b.good
	b.good = altered{good: next, pause: func(ctx context.Context, topic, group string, p backend.Pause) error {
		change(&p)
		return next.Pause(ctx, topic, group, p)
	}}
}
