package nats

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

// Topics implements [backend.Admin].
func (b *Backend) Topics(ctx context.Context) ([]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if b.closed.Load() {
		return nil, b.failure("topics", "", backend.ErrClosed)
	}
	var topics []string
	list := b.js.StreamNames(ctx)
	for name := range list.Name() {
		if topic, ok := b.topicOf(name); ok {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics, b.failure("topics", "", classOf(ctx, ended(list.Err()), false))
}

func ended(err error) error {
	if errors.Is(err, jetstream.ErrEndOfData) {
		return nil
	}
	return err
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, topic string) ([]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	names, err := b.groups(ctx, topic)
	return names, b.failure("groups", topic, classOf(ctx, err, false))
}

func (b *Backend) groups(ctx context.Context, topic string) ([]string, error) {
	if b.closed.Load() {
		return nil, backend.ErrClosed
	}
	stream, err := b.js.Stream(ctx, b.streamName(topic))
	if err != nil {
		return nil, err
	}
	var names []string
	list := stream.ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, dotted(name))
	}
	slices.Sort(names)
	return names, ended(list.Err())
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, topic string) error {
	return b.change(ctx, "delete", topic, func(ctx context.Context) error {
		b.forget(topic)
		return b.js.DeleteStream(ctx, b.streamName(topic))
	})
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, group string) error {
	return b.change(ctx, "delete", topic+"/"+group, func(ctx context.Context) error {
		return b.js.DeleteConsumer(ctx, b.streamName(topic), consumerName(group))
	})
}

// ResetGroup implements [backend.Admin]. The consumer is made anew: a pull of a
// member that waits ends, and its next one is of the new consumer.
func (b *Backend) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return b.change(ctx, "reset", topic+"/"+group, func(ctx context.Context) error {
		c, err := b.js.Consumer(ctx, b.streamName(topic), consumerName(group))
		if err != nil {
			return err
		}
		config := c.CachedInfo().Config
		config.OptStartSeq, config.OptStartTime = 0, nil
		if err := begin(&config, start); err != nil {
			return err
		}
		if err := b.js.DeleteConsumer(ctx, b.streamName(topic), consumerName(group)); err != nil {
			return err
		}
		_, err = b.js.CreateConsumer(ctx, b.streamName(topic), config)
		return err
	})
}

func (b *Backend) change(ctx context.Context, op, what string, f func(context.Context) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if b.closed.Load() {
		return b.failure(op, what, backend.ErrClosed)
	}
	return b.failure(op, what, classOf(ctx, f(ctx), true))
}
