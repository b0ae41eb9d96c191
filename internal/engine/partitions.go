package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A partitioned is a topic with partitions, each of which is a topic of its own.
type partitioned struct {
	topic  string
	names  []string // of the partitions
	turn   atomic.Uint32
	agreed atomic.Bool // the broker has stored the same number

	mu sync.Mutex // held for the call of Agree
}

// partitions are the topics with partitions, by name.
type partitions map[string]*partitioned

// newPartitions returns the topics whose numbers of partitions are given.
func newPartitions(numbers map[string]int) partitions {
	if len(numbers) == 0 {
		return nil
	}
	all := partitions{}
	for topic, n := range numbers {
		p := &partitioned{topic: topic}
		for i := range n {
			p.names = append(p.names, partition.Topic(topic, i))
		}
		all[topic] = p
	}
	return all
}

// withSettings returns the settings of topics, where the partitions of a topic have its settings.
func (ps partitions) withSettings(all map[string]Topic) map[string]Topic {
	if len(ps) == 0 {
		return all
	}
	all = maps.Clone(all)
	for topic, p := range ps {
		settings, ok := all[topic]
		if !ok {
			continue
		}
		delete(all, topic)
		for _, name := range p.names {
			all[name] = settings
		}
	}
	return all
}

// agree stores the number of partitions of the topic, once for each bus.
func (p *partitioned) agree(ctx context.Context, b backend.Backend) error {
	if p.agreed.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.agreed.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	err := driving("Read", func() error { return partition.Agree(ctx, b, p.topic, len(p.names)) })
	p.agreed.Store(err == nil)
	return err
}

// of returns the name of the partition of m. A message without a key that the broker is to store
// once goes to the partition of its mark, so that a repeated Publish finds the earlier one.
func (p *partitioned) of(m *backend.Message) string {
	n := len(p.names)
	switch {
	case m.Key != "":
		return p.names[partition.Of(m.Key, n)]
	case m.Once:
		return p.names[partition.Of(m.Mark(), n)]
	}
	return p.names[int(p.turn.Add(1)%uint32(n))]
}

// route puts the messages for topics with partitions into their partitions.
func (e *Engine) route(ctx context.Context, msgs []*backend.Message) error {
	for _, m := range msgs {
		p := e.partitions[m.Topic]
		if p == nil {
			continue
		}
		if err := p.agree(ctx, e.backend); err != nil {
			return err
		}
		m.Topic = p.of(m)
	}
	return nil
}

// agree stores the numbers of partitions of all topics.
func (ps partitions) agree(ctx context.Context, b backend.Backend) error {
	for _, topic := range slices.Sorted(maps.Keys(ps)) {
		if err := ps[topic].agree(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
