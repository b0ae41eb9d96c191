package inmemory

import (
	"context"
	"fmt"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// Read implements [backend.Reader].
func (b *Backend) Read(_ context.Context, topic, from string, limit int) ([]backend.Message, error) {
	ms, err := b.read(topic, from, limit)
	if err != nil {
		return nil, fmt.Errorf("inmemory: read %s: %w", topic, err)
	}
	var mem slab.Slab
	for i := range ms {
		expect(&mem, &ms[i])
	}
	for i := range ms {
		own(&mem, &ms[i])
	}
	return ms, nil
}

// read returns messages that share the log's memory.
func (b *Backend) read(topic, from string, limit int) ([]backend.Message, error) {
	t, err := b.directory.acquire(topic)
	if err != nil {
		return nil, err
	}
	defer t.mu.Unlock()
	start := backend.StartEarliest
	if from != "" {
		start = backend.StartAfter(from)
	}
	first, err := t.resolve(start)
	if err != nil {
		return nil, err
	}
	ms := make([]backend.Message, min(uint64(max(limit, 0)), t.log.next-first))
	for i := range ms {
		t.log.at(first+uint64(i)).read(&ms[i], t.name)
	}
	return ms, nil
}

// expect announces m to mem.
func expect(mem *slab.Slab, m *backend.Message) {
	mem.Expect(len(m.Payload), len(m.Headers), 0)
}

// own gives m a payload and headers of its own, from mem.
func own(mem *slab.Slab, m *backend.Message) {
	m.Payload = mem.Payload(m.Payload)
	headers := mem.Headers(len(m.Headers))
	copy(headers, m.Headers)
	m.Headers = headers
}
