package badbus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// spreading has the saboteurs that break the promises about subscriptions with many topics.
var spreading = []Saboteur{
	{
		Name: "bus-mixes-topics", Breaks: "each event has the topic of the first event",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			var first sync.Once
			var topic string
			return func(ctx context.Context, d *eventbus.Delivery) error {
				first.Do(func() { topic = d.Topic })
				d.Topic = topic
				return next(ctx, d)
			}
		},
	},
	{
		Name: "bus-reads-the-first-topic", Breaks: "one of the topics is read",
		subscribe: func(o *eventbus.SubscribeOptions) { o.Topics = o.Topics[:min(len(o.Topics), 1)] },
	},
	{
		Name: "bus-limits-each-topic", Breaks: "each topic has a subscription of its own",
		topics: func(b *Bus, ctx context.Context, o eventbus.SubscribeOptions, h eventbus.Handler) (s *eventbus.Subscription, err error) {
			each := o.Topics
			o.Topics = nil
			for _, topic := range each {
				one, e := b.good.Subscribe(ctx, topic, o, h)
				s, err = one, errors.Join(err, e)
			}
			return s, err
		},
	},
	{
		Name: "bus-joins-keys", Breaks: "events of a key wait for each other, whatever their topics are",
		handler: func(_ *Bus, _ string, next eventbus.Handler) eventbus.Handler {
			var mu sync.Mutex
			failed := map[string]string{} // the topic whose event of the key is to be retried
			return func(ctx context.Context, d *eventbus.Delivery) error {
				mu.Lock()
				topic := failed[d.Key]
				mu.Unlock()
				if topic != "" && topic != d.Topic {
					return eventbus.Snooze(10 * time.Millisecond)
				}
				err := next(ctx, d)
				mu.Lock()
				defer mu.Unlock()
				if failed[d.Key] = ""; err != nil {
					failed[d.Key] = d.Topic
				}
				return err
			}
		},
	},
	{
		Name: "bus-joins-dead-letters", Breaks: "the dead letters of all topics are together",
		subscribe: func(o *eventbus.SubscribeOptions) {
			if len(o.Topics) > 0 {
				o.DeadLetter = "dead"
			}
		},
	},
	{
		Name: "bus-resolves-patterns", Breaks: "a pattern stands for the topics that exist at Subscribe",
		topics: func(b *Bus, ctx context.Context, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
			return b.resolved(ctx, o, h, func(pattern, topic string) bool {
				return strings.HasPrefix(topic, strings.TrimRight(pattern, "*>")) && !strings.HasSuffix(topic, ".dlq")
			})
		},
	},
	{
		Name: "bus-matches-prefixes", Breaks: "a pattern matches each name that has the parts before and after its wildcard",
		topics: func(b *Bus, ctx context.Context, o eventbus.SubscribeOptions, h eventbus.Handler) (*eventbus.Subscription, error) {
			return b.resolved(ctx, o, h, func(pattern, topic string) bool {
				at := strings.IndexAny(pattern, "*>")
				return strings.HasPrefix(topic, pattern[:at]) && strings.HasSuffix(topic, pattern[at+1:])
			})
		},
	},
	{
		Name: "bus-fails-together", Breaks: "while one topic fails, nothing is read",
		backend: func(b backend.Backend) backend.Backend {
			var failing atomic.Int64
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &sympathetic{Source: s, failing: &failing} }}
		},
	},
	{
		Name: "bus-waits-in-idle-topics", Breaks: "a read ends when an event comes, or after a minute",
		backend: func(b backend.Backend) backend.Backend {
			return &sourced{Backend: b, source: func(s backend.Source) backend.Source { return &deaf{s} }}
		},
	},
}

// resolved subscribes h to the topics that exist and match o.Topics.
func (b *Bus) resolved(ctx context.Context, o eventbus.SubscribeOptions, h eventbus.Handler, matches func(pattern, topic string) bool) (*eventbus.Subscription, error) {
	admin, _ := backend.As[backend.Admin](b.good.Backend())
	topics, err := admin.Topics(ctx)
	if err != nil {
		return nil, err
	}
	patterns := o.Topics
	o.Topics = slices.DeleteFunc(topics, func(topic string) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return matches(p, topic) })
	})
	return b.good.Subscribe(ctx, "", o, h)
}

// sympathetic is a source that fails while another one fails.
type sympathetic struct {
	backend.Source
	failing *atomic.Int64
	fails   bool
}

func (s *sympathetic) Unwrap() backend.Source { return s.Source }

func (s *sympathetic) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	if s.failing.Load() > 0 && !s.fails {
		return nil, backend.ErrDenied
	}
	ds, err := s.Source.Receive(ctx, limit, maxBytes)
	if fails := errors.Is(err, backend.ErrDenied); fails != s.fails {
		s.fails = fails
		s.failing.Add(map[bool]int64{true: 1, false: -1}[fails])
	}
	return ds, err
}

// deaf is a source whose Receive does not end with its context, but a minute after its call.
type deaf struct{ backend.Source }

func (d *deaf) Unwrap() backend.Source { return d.Source }

func (d *deaf) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if ds, err := d.Source.Receive(ctx, limit, maxBytes); len(ds) > 0 || err != nil && ctx.Err() == nil {
			return ds, err
		}
	}
	return nil, nil
}
