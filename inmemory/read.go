package inmemory

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
)

// Read implements [backend.Reader].
func (b *Backend) Read(_ context.Context, topic, from string, limit int) ([]backend.Message, error) {
	ms, err := b.read(topic, from, limit)
	if err != nil {
		return nil, fmt.Errorf("inmemory: read %s: %w", topic, err)
	}
	for i := range ms {
		own(&ms[i])
	}
	return ms, nil
}

// read returns messages that share their large payloads with the log.
func (b *Backend) read(topic, from string, limit int) ([]backend.Message, error) {
	t, err := b.directory.acquire(topic)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	next, first := t.log.next.Load(), t.log.first
	if from != "" {
		offset, err := parsePosition(from)
		if err != nil {
			return nil, err
		}
		first = max(first, min(offset, next-1)+1)
	}
	ms := make([]backend.Message, min(uint64(max(limit, 0)), next-first))
	for i := range ms {
		ms[i].Topic = t.name
	}
	for i := 0; i < len(ms); {
		i += t.log.read(first+uint64(i), len(ms)-i, func(j int) *backend.Message { return &ms[i+j] })
	}
	return ms, nil
}
