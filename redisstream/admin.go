package redisstream

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// Topics implements [backend.Admin]. It walks through all keys of the server, in
// small steps.
func (b *Backend) Topics(ctx context.Context) ([]string, error) {
	var topics []string
	err := b.walk(ctx, b.options.Namespace+":{*}", "stream", func(keys []string) error {
		for _, key := range keys {
			if topic, ok := b.topicOf(key); ok {
				topics = append(topics, topic)
			}
		}
		return nil
	})
	slices.Sort(topics)
	return slices.Compact(topics), b.failure("topics", "", err)
}

const walkStep = 1000

// walk calls each for the keys that match a pattern and have a type, "" for any,
// on every server.
func (b *Backend) walk(ctx context.Context, pattern, kind string, each func(keys []string) error) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	return b.with(ctx, func(w *wire) error {
		err := w.do(ctx, 0, func(ctx context.Context) error {
			nodes, err := b.masterNodes(ctx)
			for _, node := range nodes {
				for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
					var keys []string
					if keys, cursor, err = node.ScanType(ctx, cursor, pattern, walkStep, kind).Result(); err == nil {
						err = each(keys)
					}
				}
			}
			return err
		})
		if err != nil {
			return classOf(ctx, err, w.sent.Load())
		}
		return nil
	})
}

// Groups implements [backend.Admin].
func (b *Backend) Groups(ctx context.Context, topic string) ([]string, error) {
	names, err := b.groups(ctx, topic)
	return names, b.failure("groups", topic, err)
}

func (b *Backend) groups(ctx context.Context, topic string) (names []string, err error) {
	if b.closed.Load() {
		return nil, backend.ErrClosed
	}
	p, err := b.run(ctx, &groupsScript, []string{b.streamKey(topic)})
	if err != nil {
		return nil, err
	}
	for range p.array() {
		names = append(names, string(p.bulk()))
	}
	slices.Sort(names)
	return names, p.end()
}

// DeleteTopic implements [backend.Admin].
func (b *Backend) DeleteTopic(ctx context.Context, topic string) error {
	return b.failure("delete", topic, b.deleteTopic(ctx, topic))
}

func (b *Backend) deleteTopic(ctx context.Context, topic string) error {
	stream := b.streamKey(topic)
	names, err := b.groups(ctx, topic)
	if err != nil {
		return err
	}
	args := []any{"unlink", stream, trimmedKey(stream), youngKey(stream)}
	for _, name := range names {
		delayed := delayedKey(stream, name)
		args = append(args, delayed, sweptKey(delayed))
	}
	if _, err := b.command(ctx, args...); err != nil {
		return err
	}
	// The marks of Once would expire by themselves, but what comes anew is not
	// a duplicate of what is gone.
	var marks []any
	err = b.walk(ctx, stream+":once:*", "", func(keys []string) error {
		for _, key := range keys {
			marks = append(marks, key)
		}
		return nil
	})
	for err == nil && len(marks) > 0 {
		part := marks[:min(len(marks), walkStep)]
		marks = marks[len(part):]
		_, err = b.command(ctx, append([]any{"unlink"}, part...)...)
	}
	return err
}

// DeleteGroup implements [backend.Admin].
func (b *Backend) DeleteGroup(ctx context.Context, topic, group string) error {
	return b.failure("delete", topic+"/"+group, b.deleteGroup(ctx, topic, group))
}

func (b *Backend) deleteGroup(ctx context.Context, topic, group string) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	stream := b.streamKey(topic)
	p, err := b.command(ctx, "xgroup", "destroy", stream, group)
	if err != nil {
		return err
	}
	if p.integer() == 0 {
		return fmt.Errorf("%w: no such group", backend.ErrGone)
	}
	delayed := delayedKey(stream, group)
	_, err = b.command(ctx, "unlink", delayed, sweptKey(delayed))
	return err
}

// ResetGroup implements [backend.Admin].
func (b *Backend) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return b.failure("reset", topic+"/"+group, b.resetGroup(ctx, topic, group, start))
}

func (b *Backend) resetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	id, err := startID(start)
	if err != nil {
		return err
	}
	stream := b.streamKey(topic)
	_, err = b.run(ctx, &resetScript, []string{stream, delayedKey(stream, group)}, group, id)
	return err
}
