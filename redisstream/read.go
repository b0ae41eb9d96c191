package redisstream

import (
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
	w, err := b.wires.Get(ctx)
	if err != nil {
		return nil, classOf(ctx, err, false)
	}
	defer b.wires.Put(w)
	key := b.streamKey(topic)
	exists := &call{args: []any{"exists", key}}
	entries := &call{args: []any{"xrange", key, start, "+", "count", max(limit, 0)}}
	w.send(ctx, 0, exists, entries)
	if exists.err != nil {
		return nil, exists.err
	}
	if entries.err != nil {
		return nil, entries.err
	}
	p := exists.reply.parse()
	if p.integer() == 0 {
		return nil, fmt.Errorf("%w: no such topic", backend.ErrGone)
	}
	var got batch
	p = entries.reply.parse()
	got.readRange(&p)
	if err := p.end(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrRefused, err)
	}
	return got.messages(topic), nil
}

// readRange reads the reply of XRANGE: {{id, fields}, …}.
func (b *batch) readRange(p *parser) {
	b.entries = b.entries[:0]
	for range p.array() {
		p.arrayOf(2)
		e := entry{id: p.bulk()}
		e.readFields(p)
		b.entries = append(b.entries, e)
	}
}

func (b *batch) messages(topic string) []backend.Message {
	mem := b.memory()
	ms := make([]backend.Message, len(b.entries))
	var position [positionLen]byte
	for i := range b.entries {
		e, m := &b.entries[i], &ms[i]
		m.Topic = topic
		m.Position = mem.Text(appendPosition(position[:0], e.id))
		_ = e.read(&mem, m, len(ms)-i) // then m has the raw bytes
	}
	return ms
}
