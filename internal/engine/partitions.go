package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/partition"
)

// A partitionedTopic is a topic with partitions, each of which is a topic itself.
type partitionedTopic struct {
	names  []string // of the partitions
	turn   atomic.Uint32
	agreed *setup // reads the number from the broker, or stores it
	pledge partition.Pledge
}

// partitions maps the names of topics that have partitions.
type partitions map[string]*partitionedTopic

// newPartitions returns the topics whose numbers of partitions are given.
func newPartitions(b backend.Backend, numbers map[string]int) partitions {
	if len(numbers) == 0 {
		return nil
	}
	all := partitions{}
	for topic, n := range numbers {
		p := &partitionedTopic{}
		p.agreed = newSetup(func(ctx context.Context) error {
			began := time.Now()
			err := callDriver("Read", func() error { return partition.Agree(ctx, b, topic, n) })
			if err == nil {
				p.pledge.Renew(began)
			}
			return err
		})
		for i := range n {
			p.names = append(p.names, partition.Topic(topic, i))
		}
		all[topic] = p
	}
	return all
}

// withSettings returns the settings of topics, and gives each partition the settings of its topic.
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

// agree returns the work to be done before the number of partitions is used, because a command may
// have changed it.
func (p *partitionedTopic) agree() *setup {
	if !p.pledge.Holds() {
		p.agreed.forget()
	}
	return p.agreed
}

// confirm returns err, the result of a Publish. If the Publish took so long that the number of
// partitions has changed since, it returns a different error, because nobody may be reading the
// partitions of the messages.
func (p *partitionedTopic) confirm(before *setups, err error) error {
	if p.pledge.Holds() || err != nil && !errors.Is(err, backend.ErrUnknownOutcome) {
		return err
	}
	changed := before.do(p.agree())
	if other, ok := errors.AsType[*partition.NumberError](changed); ok && other.Next == 0 {
		return fmt.Errorf("%w: the number of partitions has changed in the meantime: %w", backend.ErrUnknownOutcome, other)
	}
	return err
}

// partitionOf returns the name of the partition of m. If m has no key and the broker must store it
// only once, it goes to the partition of its Once mark, so that a repeated Publish finds the
// earlier copy.
func (p *partitionedTopic) partitionOf(m *backend.Message) string {
	n := len(p.names)
	switch {
	case m.Key != "":
		return p.names[partition.Of(m.Key, n)]
	case m.Once:
		return p.names[partition.Of(m.Mark(), n)]
	}
	return p.names[int(p.turn.Add(1)%uint32(n))]
}
