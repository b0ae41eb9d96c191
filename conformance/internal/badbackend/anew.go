package badbackend

import (
	"context"
	"fmt"
	"strconv"

	"github.com/seed41896749/eventbus/backend"
)

var renumbering = []Saboteur{
	{Name: "positions-begin-anew", Breaks: "a topic numbers its messages from one", sabotage: func(b *breakable) {
		n := &numbers{good: b.good, b: b, deleted: map[string]uint64{}, last: map[string]uint64{}}
		b.good, b.publish, b.read, b.remove = n, n.Publish, n.Read, n.Remove
		attach := b.attach
		b.attach = func(ctx context.Context, c backend.Config) (backend.Source, error) {
			c.Start = n.real(c.Topic, c.Start)
			return attach(ctx, c)
		}
		delivered(b, func(m *member, ds []backend.Delivery) []backend.Delivery {
			for i := range ds {
				ds[i].Position = n.shown(m.config.Topic, ds[i].Position)
			}
			return ds
		})
	}},
}

// A numbers is a backend that shows positions which begin with 1 in each topic that is made
// anew. The positions of the good backend grow over a deletion.
type numbers struct {
	good
	b             *breakable
	deleted, last map[string]uint64 // by topic: the last good position of the deleted topic, and of all messages
}

// shown returns the false position of a message.
func (n *numbers) shown(topic, position string) string { return n.moved(topic, position, false) }

// real returns start with the position of the good backend.
func (n *numbers) real(topic string, start backend.Start) backend.Start {
	if position, ok := start.After(); ok {
		return backend.StartAfter(n.moved(topic, position, true))
	}
	return start
}

// moved adds the last position of the deleted topic to position, or subtracts it. It returns
// a text that is no position as it is.
func (n *numbers) moved(topic, position string, add bool) string {
	number, err := strconv.ParseUint(position, 16, 64)
	if err != nil || len(position) != 16 {
		return position
	}
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	if add {
		return fmt.Sprintf("%016x", number+n.deleted[topic])
	}
	n.last[topic] = max(n.last[topic], number)
	return fmt.Sprintf("%016x", number-n.deleted[topic])
}

func (n *numbers) Publish(ctx context.Context, ms []*backend.Message) error {
	err := n.good.Publish(ctx, ms)
	for _, m := range ms {
		m.Position = n.shown(m.Topic, m.Position)
	}
	return err
}

func (n *numbers) Read(ctx context.Context, topic string, from backend.Start, limit int) ([]backend.Message, error) {
	if position, ok := from.After(); ok {
		from = backend.StartAfter(n.moved(topic, position, true))
	}
	ms, err := n.good.Read(ctx, topic, from, limit)
	for i := range ms {
		ms[i].Position = n.shown(topic, ms[i].Position)
	}
	return ms, err
}

func (n *numbers) Remove(ctx context.Context, topic string, positions []string) error {
	real := make([]string, len(positions))
	for i, p := range positions {
		real[i] = n.moved(topic, p, true)
	}
	return n.good.Remove(ctx, topic, real)
}

func (n *numbers) DeleteTopic(ctx context.Context, topic string) error {
	err := n.good.DeleteTopic(ctx, topic)
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	n.deleted[topic] = n.last[topic]
	return err
}

func (n *numbers) ResetGroup(ctx context.Context, topic, group string, start backend.Start) error {
	return n.good.ResetGroup(ctx, topic, group, n.real(topic, start))
}
