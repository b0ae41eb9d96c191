package badbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// waking makes each member look for messages only when it begins to wait and when its topic
// is woken. An item of Publish or Delay wakes its topic if wakes returns true for the index
// of the item and the error of the call.
func waking(b *breakable, wakes func(i int, err error) bool) {
	changed := map[string]chan struct{}{} // by topic
	when := func(topic string) chan struct{} {
		b.mu.Lock()
		defer b.mu.Unlock()
		if changed[topic] == nil {
			changed[topic] = make(chan struct{}, 1)
		}
		return changed[topic]
	}
	wake := func(topic string) {
		select {
		case when(topic) <- struct{}{}:
		default:
		}
	}
	b.publish = func(ctx context.Context, ms []*backend.Message) error {
		err := b.good.Publish(ctx, ms)
		for i, m := range ms {
			if wakes(i, err) {
				wake(m.Topic)
			}
		}
		return err
	}
	b.joined = func(m *member) {
		m.delay = func(ctx context.Context, ds []backend.Delayed) error {
			err := m.next.(backend.Delayer).Delay(ctx, ds)
			for i, d := range ds {
				if wakes(i, err) {
					time.AfterFunc(d.For, func() { wake(m.config.Topic) })
				}
			}
			return err
		}
		m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
			for {
				look, cancel := context.WithTimeout(ctx, time.Millisecond)
				ds, err := m.next.Receive(look, limit, maxBytes)
				cancel()
				if len(ds) > 0 || ctx.Err() != nil || look.Err() == nil {
					return ds, err
				}
				select {
				case <-when(m.config.Topic):
				case <-ctx.Done():
				}
			}
		}
	}
}

var wakings = []Saboteur{
	{Name: "wakes-own-process-only", driver: true, Breaks: "a driver tells its own members what it has done", sabotage: func(b *breakable) {
		waking(b, func(int, error) bool { return true })
	}},
	{Name: "wakes-first-topic-only", driver: true, Breaks: "a batch is for one topic", sabotage: func(b *breakable) {
		waking(b, func(i int, _ error) bool { return i == 0 })
	}},
	{Name: "wakes-on-success-only", driver: true, Breaks: "a call with an error has changed nothing", sabotage: func(b *breakable) {
		waking(b, func(_ int, err error) bool { return err == nil })
	}},
	{Name: "deadline-is-an-outage", driver: true, Breaks: "a read that nothing answers in time has failed", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.receive = func(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
				ds, err := m.next.Receive(ctx, limit, maxBytes)
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					err = fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
				}
				return ds, err
			}
		}
	}},
}
