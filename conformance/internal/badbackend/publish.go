package badbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var publishing = []Saboteur{
	{Name: "loses-some", Breaks: "most messages are stored", sabotage: func(b *breakable) {
		n := 0
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.good.Publish(ctx, slices.DeleteFunc(slices.Clone(ms), func(*backend.Message) bool {
				n++
				return n%29 == 0
			}))
		}
	}},
	{Name: "publishes-twice", Breaks: "a publish is repeated to be sure", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			return errors.Join(b.good.Publish(ctx, ms[:1]), b.good.Publish(ctx, ms))
		}
	}},
	{Name: "first-topic-wins", Breaks: "a batch goes to the topic of its first message", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			for _, m := range ms {
				m.Topic = ms[0].Topic
			}
			return b.good.Publish(ctx, ms)
		}
	}},
	{Name: "folds-topics", Breaks: "topics are told apart by letters, whatever their case", sabotage: func(b *breakable) {
		names := map[string]string{} // for each folded name, the topic name that was used last
		fold := func(name string) string {
			b.mu.Lock()
			defer b.mu.Unlock()
			folded := folded(name)
			names[folded] = name
			return folded
		}
		published(b, func(m *backend.Message) { m.Topic = fold(m.Topic) })
		delivered(b, func(m *member, ds []backend.Delivery) []backend.Delivery {
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := range ds {
				ds[i].Topic = names[ds[i].Topic]
			}
			return ds
		})
		joining(b, func(c *backend.Config) { c.Topic = fold(c.Topic) })
	}},
	{Name: "folds-groups", Breaks: "groups are told apart by letters, whatever their case", sabotage: func(b *breakable) {
		joining(b, func(c *backend.Config) { c.Group = folded(c.Group) })
	}},
	{Name: "joins-names", Breaks: "a group is told apart by its name after that of its topic", sabotage: func(b *breakable) {
		topics := map[string]string{} // by the joined name
		joining(b, func(c *backend.Config) {
			b.mu.Lock()
			defer b.mu.Unlock()
			name := folded(c.Topic + "." + c.Group)
			if topics[name] == "" {
				topics[name] = c.Topic
			}
			c.Topic = topics[name]
		})
	}},
	{Name: "blurs-errors", Breaks: "an error is an error", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			if err := b.good.Publish(ctx, ms); err != nil {
				return fmt.Errorf("%w: %s", backend.ErrUnknownOutcome, err.Error())
			}
			return nil
		}
	}},
	{Name: "cuts-large", Breaks: "messages of up to 32 KiB arrive whole", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) { m.Payload = m.Payload[:min(len(m.Payload), 32<<10)] })
	}},
	{Name: "sizes-without-headers", Breaks: "headers and keys do not count against the limit", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) {
			if limit := backend.LimitsOf(b.good).Payload; m.Size() > limit && len(m.ID)+len(m.Payload) <= limit {
				m.Key, m.Headers = "", nil // so that it can be stored
			}
		})
	}},
	{Name: "sizes-with-framing", Breaks: "the length of each header counts too", sabotage: func(b *breakable) {
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.Size()+2*len(m.Headers) > backend.LimitsOf(b.good).Payload {
				return backend.ErrTooLarge
			}
			return b.good.Publish(ctx, []*backend.Message{m})
		})
	}},
	{Name: "errors-by-topic", Breaks: "the errors of a batch are in the order of topics", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			order, errs := make([]int, len(ms)), make([]error, len(ms))
			for i := range ms {
				order[i] = i
			}
			slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(ms[i].Topic, ms[j].Topic) })
			for at, i := range order {
				errs[at] = backend.ErrorAt(err, i)
			}
			return backend.AsBatchError(errs)
		}
	}},
	{Name: "blurs-batches", Breaks: "a batch fails if one of its messages does", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			for i := range ms {
				if at := backend.ErrorAt(err, i); at != nil {
					return at
				}
			}
			return nil
		}
	}},
	{Name: "hides-failures", Breaks: "who publishes need not care about errors", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			b.good.Publish(ctx, ms) //nolint:errcheck // the point
			return nil
		}
	}},
	{Name: "ignores-publish-context", driver: true, Breaks: "a publish is always tried", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(context.WithoutCancel(ctx), ms)
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
			}
			return err
		}
	}},
	{Name: "stores-later", driver: true, Breaks: "a message is stored soon after Publish has returned", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			own := make([]*backend.Message, len(ms))
			for i, m := range ms {
				o := *m
				own[i] = &o
			}
			time.AfterFunc(20*time.Millisecond, func() {
				b.good.Publish(context.WithoutCancel(ctx), own) //nolint:errcheck // nobody would know
			})
			return nil
		}
	}},
	{Name: "publishes-unknown-again", driver: true, Breaks: "a publish without an answer is repeated", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			for errors.Is(err, backend.ErrUnknownOutcome) && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
				err = b.good.Publish(ctx, ms)
			}
			return err
		}
	}},
	{Name: "publishes-some-day", driver: true, Breaks: "what cannot be published now is published later", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			if err := b.good.Publish(ctx, ms); !errors.Is(err, backend.ErrUnavailable) {
				return err
			}
			return nil
		}
	}},
	{Name: "drops-oldest", Breaks: "when there is no room the oldest messages make some", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			if errors.Is(err, backend.ErrFull) {
				groups, _ := b.good.Groups(ctx, ms[0].Topic)
				for _, g := range groups {
					b.good.ResetGroup(ctx, ms[0].Topic, g, backend.StartLatest) //nolint:errcheck // it exists
				}
			}
			return err
		}
	}},
}

func folded(name string) string {
	return strings.ToLower(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

var contents = []Saboteur{
	{Name: "cuts-at-nul", Breaks: "payloads are text", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) { d.Payload, _, _ = bytes.Cut(d.Payload, []byte{0}) })
	}},
	{Name: "publishes-1000", Breaks: "a batch has at most 1,000 messages", sabotage: func(b *breakable) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			if len(ms) > 1000 {
				return backend.ErrRefused
			}
			return b.good.Publish(ctx, ms)
		}
	}},
	{Name: "settles-1000", Breaks: "a call settles at most 1,000 deliveries", sabotage: func(b *breakable) {
		b.joined = func(m *member) {
			m.ack = func(ctx context.Context, ds []*backend.Delivery) error {
				if len(ds) > 1000 {
					return backend.ErrRefused
				}
				return m.next.Ack(ctx, ds)
			}
		}
	}},
	{Name: "trims-headers", Breaks: "header values have no outer spaces", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) {
			for i := range d.Headers {
				d.Headers[i].Value = strings.TrimSpace(d.Headers[i].Value)
			}
		})
	}},
	{Name: "folds-headers", Breaks: "header names are case-insensitive", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) {
			var folded backend.Headers
			for _, h := range m.Headers {
				folded.Set(strings.ToLower(h.Name), h.Value)
			}
			m.Headers = folded
		})
	}},
	{Name: "cleans-text", Breaks: "IDs and keys are one line", sabotage: func(b *breakable) {
		published(b, func(m *backend.Message) {
			m.ID, m.Key = strings.Join(strings.Fields(m.ID), " "), strings.Join(strings.Fields(m.Key), " ")
		})
	}},
	{Name: "needs-id", Breaks: "a message has an ID", sabotage: func(b *breakable) {
		one(b, func(ctx context.Context, m *backend.Message) error {
			if m.ID == "" {
				return backend.ErrRefused
			}
			return b.good.Publish(ctx, []*backend.Message{m})
		})
	}},
	{Name: "redelivers-bare", Breaks: "what comes back is the payload", sabotage: func(b *breakable) {
		each(b, func(d *backend.Delivery) {
			if d.Attempt > 1 {
				d.Key, d.Headers = "", nil
			}
		})
	}},
	{Name: "keeps-lent-memory", driver: true, Breaks: "who publishes does not touch a message again", sabotage: func(b *breakable) {
		kept := map[string]*backend.Message{}
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(ctx, ms)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range ms {
				kept[m.Position] = &backend.Message{Payload: m.Payload, Headers: m.Headers}
			}
			return err
		}
		each(b, func(d *backend.Delivery) {
			b.mu.Lock()
			defer b.mu.Unlock()
			d.Payload, d.Headers = kept[d.Position].Payload, kept[d.Position].Headers
		})
	}},
	{Name: "shares-memory", Breaks: "who receives does not change a message", sabotage: func(b *breakable) {
		shared := map[string]backend.Message{}
		each(b, func(d *backend.Delivery) {
			b.mu.Lock()
			defer b.mu.Unlock()
			m, ok := shared[d.Position]
			if !ok {
				shared[d.Position] = d.Message
				return
			}
			d.Payload, d.Headers = m.Payload, m.Headers
		})
	}},
}
