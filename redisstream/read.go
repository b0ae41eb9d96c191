package redisstream

import (
	"cmp"
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// Read implements [backend.Reader]. What cannot be read as a message has its raw
// bytes as Payload.
func (b *Backend) Read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	ms, err := b.read(ctx, topic, from, limit)
	return ms, b.failure("read", topic, err)
}

func (b *Backend) read(ctx context.Context, topic, from string, limit int) ([]backend.Message, error) {
	if b.closed.Load() {
		return nil, backend.ErrClosed
	}
	start := "-"
	if from != "" {
		if err := checkPosition(from); err != nil {
			return nil, fmt.Errorf("%w: %w", backend.ErrRefused, err)
		}
		start = "(" + from
	}
	key := b.streamKey(topic)
	exists := &call{args: []any{"exists", key}}
	entries := &call{args: []any{"xrange", key, start, "+", "count", max(limit, 0)}}
	err := b.with(ctx, func(w *wire) error {
		w.send(ctx, 0, exists, entries)
		return cmp.Or(exists.err, entries.err)
	})
	if err != nil {
		return nil, err
	}
	p := parser{rest: exists.reply.raw}
	if p.integer() == 0 {
		return nil, fmt.Errorf("%w: no such topic", backend.ErrGone)
	}
	var got batch
	p = parser{rest: entries.reply.raw}
	got.readRange(&p)
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	return got.messages(topic), nil
}
