package inmemory

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Read implements [backend.Reader].
func (b *Backend) Read(_ context.Context, topic, from string, limit int) ([]backend.Message, error) {
	ms, first, err := b.read(topic, from, limit)
	if err != nil {
		return nil, fmt.Errorf("inmemory: read %s: %w", topic, err)
	}
	var mem slab.Slab
	for i := range ms {
		expect(&mem, &ms[i])
	}
	for i := range ms {
		own(&mem, &ms[i])
		ms[i].Position = position(&mem, first+uint64(i))
	}
	return ms, nil
}

// read returns messages that share the log's memory, and the offset of the
// first.
func (b *Backend) read(topic, from string, limit int) (ms []backend.Message, first uint64, err error) {
	t, err := b.acquire(topic)
	if err != nil {
		return nil, 0, err
	}
	defer t.mu.Unlock()
	start := backend.StartEarliest
	if from != "" {
		start = backend.StartAfter(from)
	}
	if first, err = t.resolve(start); err != nil {
		return nil, 0, err
	}
	n := min(uint64(max(limit, 0)), t.log.next-first)
	ms = make([]backend.Message, n)
	for i := range ms {
		ms[i] = t.log.at(first + uint64(i)).message(t.name)
	}
	return ms, first, nil
}
