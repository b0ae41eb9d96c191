package nats

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Settler = (*Backend)(nil)

// takenKey is the key of the messages that operators have settled, in the metadata of a consumer. The
// value lists the newest ones, the oldest first. Each has its sequence and the time of its Settle in nanoseconds:
//
//	1795827900560167:1795827900869103221,1795827900560201:1795827914120455090
//
// The server tells a member nothing of a message that another client acknowledges. It even confirms
// words about it. So members learn from the list which of their deliveries are lost.
const takenKey = "eventbus.settled"

const mostTaken = 64 // messages in the list

// Settle implements [backend.Settler]. It writes the message into the list of the consumer, and sends an
// acknowledgement in the name of a delivery. The server looks only at the sequence in it, and ignores one of a
// message that is not pending. So Settle does not tell whether the group had the message.
func (b *Backend) Settle(ctx context.Context, topic, group, position string) (had bool, err error) {
	err = b.call(ctx, "settle in", topic+"/"+group, harmless, func(ctx context.Context) error {
		return settleFor(ctx, b, topic, group, position)
	})
	return err == nil, err
}

func settleFor(ctx context.Context, b *Backend, topic, group, position string) error {
	p := b.place(topic)
	var info jetstream.ConsumerInfo
	if err := b.ask(ctx, consumerInfo(p, group), nil, &info); err != nil {
		return err
	}
	seq, err := parsePosition(position)
	switch {
	case err != nil:
		return err
	case seq > info.Delivered.Stream:
		return fmt.Errorf("%w: the group has not received the message at %s yet", backend.ErrRefused, position)
	}
	c := info.Config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	list := takenOf(&info)
	list = append(list[max(len(list)+1-mostTaken, 0):], fmt.Sprintf("%d:%d", seq, time.Now().UnixNano()))
	c.Metadata[takenKey] = strings.Join(list, ",")
	if err := b.putConsumer(ctx, p, c, "update", nil); err != nil {
		return err
	}
	subject := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.0.0", p.stream, p.consumer(group), seq) // see meta
	answer, err := b.request(ctx, outgoing{subject: subject, data: ackBody}, true)
	switch {
	case err != nil:
		return err
	case isUnserved(answer):
		return fmt.Errorf("%w: no server takes acknowledgements of the consumer", backend.ErrUnavailable)
	}
	info.Config = c
	for _, s := range b.members.of(topic, group) {
		s.taken.learn(&info)
	}
	return nil
}

// takenOf returns the list of a consumer.
func takenOf(c *jetstream.ConsumerInfo) []string {
	text := c.Config.Metadata[takenKey]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// A taken has the messages of a member that operators have settled.
type taken struct {
	mu   sync.Mutex
	list []string        // of the consumer, when the member was last told
	lost map[uint64]bool // sequences in list that were added since the member attached, and were not delivered since
}

// begin records the list of the consumer to which the member attaches. The list says nothing of later deliveries.
func (t *taken) begin(c *jetstream.ConsumerInfo) { t.list = takenOf(c) }

// learn notes the present list of the consumer.
func (t *taken) learn(c *jetstream.ConsumerInfo) {
	list := takenOf(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(list, t.list) {
		return
	}
	lost := map[uint64]bool{}
	for _, entry := range list {
		text, _, _ := strings.Cut(entry, ":")
		seq, err := strconv.ParseUint(text, 10, 64)
		if err == nil && (t.lost[seq] || !slices.Contains(t.list, entry)) {
			lost[seq] = true
		}
	}
	t.list, t.lost = list, lost
}

// any reports whether the member knows of such a message.
func (t *taken) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lost) > 0
}

// took reports whether an operator has settled the message of a delivery.
func (t *taken) took(r *receipt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lost) == 0 {
		return false
	}
	m, err := metaOf(r.reply)
	return err == nil && t.lost[m.sequence]
}

// arrived notes a delivery: after a reset the group has the message again.
func (t *taken) arrived(sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lost, sequence)
}
