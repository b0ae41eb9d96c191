package badbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

var publishing = []Saboteur{
	{"loses-some", "most messages are stored", func(b *bus) {
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
	{"publishes-twice", "a publish is repeated to be sure", func(b *bus) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			return errors.Join(b.good.Publish(ctx, ms[:1]), b.good.Publish(ctx, ms))
		}
	}},
	{"first-topic-wins", "a batch goes to the topic of its first message", func(b *bus) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			for _, m := range ms {
				m.Topic = ms[0].Topic
			}
			return b.good.Publish(ctx, ms)
		}
	}},
	{"folds-topics", "topics are told apart by letters, whatever their case", func(b *bus) {
		names := map[string]string{} // by folded name, the last that was used
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
	{"folds-groups", "groups are told apart by letters, whatever their case", func(b *bus) {
		joining(b, func(c *backend.Config) { c.Group = folded(c.Group) })
	}},
	{"blurs-errors", "an error is an error", func(b *bus) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			if err := b.good.Publish(ctx, ms); err != nil {
				return fmt.Errorf("%w: %s", backend.ErrUnknownOutcome, err.Error())
			}
			return nil
		}
	}},
	{"cuts-large", "messages of up to 32 KiB arrive whole", func(b *bus) {
		published(b, func(m *backend.Message) { m.Payload = m.Payload[:min(len(m.Payload), 32<<10)] })
	}},
	{"blurs-batches", "a batch fails if one of its messages does", func(b *bus) {
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
	{"hides-failures", "who publishes need not care about errors", func(b *bus) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			b.good.Publish(ctx, ms) //nolint:errcheck // the point
			return nil
		}
	}},
	{"ignores-publish-context", "a publish is always tried", func(b *bus) {
		b.publish = func(ctx context.Context, ms []*backend.Message) error {
			err := b.good.Publish(context.WithoutCancel(ctx), ms)
			if ctx.Err() != nil {
				return fmt.Errorf("%w: %w", backend.ErrUnavailable, ctx.Err())
			}
			return err
		}
	}},
	{"drops-oldest", "when there is no room the oldest messages make some", func(b *bus) {
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
	{"cuts-at-nul", "payloads are text", func(b *bus) {
		each(b, func(d *backend.Delivery) { d.Payload, _, _ = bytes.Cut(d.Payload, []byte{0}) })
	}},
	{"trims-headers", "header values have no outer spaces", func(b *bus) {
		each(b, func(d *backend.Delivery) {
			for i := range d.Headers {
				d.Headers[i].Value = strings.TrimSpace(d.Headers[i].Value)
			}
		})
	}},
	{"folds-headers", "header names are case-insensitive", func(b *bus) {
		published(b, func(m *backend.Message) {
			var folded backend.Headers
			for _, h := range m.Headers {
				folded.Set(strings.ToLower(h.Name), h.Value)
			}
			m.Headers = folded
		})
	}},
	{"cleans-text", "IDs and keys are one line", func(b *bus) {
		published(b, func(m *backend.Message) {
			m.ID, m.Key = strings.Join(strings.Fields(m.ID), " "), strings.Join(strings.Fields(m.Key), " ")
		})
	}},
	{"redelivers-bare", "what comes back is the payload", func(b *bus) {
		each(b, func(d *backend.Delivery) {
			if d.Attempt > 1 {
				d.Key, d.Headers = "", nil
			}
		})
	}},
	{"keeps-lent-memory", "who publishes does not touch a message again", func(b *bus) {
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
	{"shares-memory", "who receives does not change a message", func(b *bus) {
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
