package nats

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// typical is a message as the bus makes them.
func typical() *backend.Message {
	return &backend.Message{
		Topic: "orders", ID: "019c2f6e-8a54-7d1e-9a39-6f3f1a7f3f10", Key: "customer-7",
		Headers: backend.Headers{
			{Name: "ce-type", Value: "order.placed"},
			{Name: "ce-source", Value: "shop"},
			{Name: "ce-time", Value: "2026-11-21T10:30:00.123456789Z"},
		},
		Payload: make([]byte, 256),
	}
}

// What a read allocates here does not depend on how many messages it brings. What
// nats.go allocates for each before is not counted.
func TestReadingAllocatesPerReadNotPerMessage(t *testing.T) {
	const messages = 512
	w := headerWriter{header: natsgo.Header{}}
	w.write(typical())
	msgs := make([]arrival, messages)
	for i := range msgs {
		msgs[i] = arrival{
			reply:  fmt.Sprintf("$JS.ACK.bus=orders.billing.1.%d.%d.1795243593723000000.%d", i+17, i+17, messages-i),
			header: w.header, data: typical().Payload,
		}
	}
	s := &source{config: backend.Config{Topic: "orders", Lease: time.Minute}}
	ds := s.deliveries(nil, msgs, messages, time.Now())
	require.Len(t, ds, messages)
	last := ds[messages-1]
	require.NoError(t, last.Err)
	require.Equal(t, "00000000000000000528", last.Position)
	require.ElementsMatch(t, typical().Headers, last.Headers)
	require.Equal(t, []string{typical().ID, typical().Key}, []string{last.ID, last.Key})
	allocs := testing.AllocsPerRun(100, func() { ds = s.deliveries(nil, msgs, messages, time.Now()) })
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 6.0, "allocations for a read of %d messages", messages)
}

// Payloads of some size are sent from where they are: copies of them would be more than
// a call leaves to the next.
func TestLargePayloadsAllocateNothing(t *testing.T) {
	const messages = 100
	o := outbox{to: open(&drain{}, newTap())}
	m := typical()
	m.Payload = make([]byte, 16<<10)
	say := func() {
		o.frames, o.ends, o.apart = o.frames[:0], o.ends[:0], 0
		for range messages {
			if err := o.publish("bus.orders", []byte("_INBOX.1"), m, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	say()
	require.Less(t, cap(o.frames), messages*1024)
	require.LessOrEqual(t, testing.AllocsPerRun(100, say), 1.0, "allocations for %d messages", messages)
}

// What is made of a message to be published, and read of its answer, is in memory
// that a line uses again, but for the texts of a call.
func TestPublishingAllocatesPerCallNotPerMessage(t *testing.T) {
	const messages = 100
	b := &Backend{}
	l := &line{prefix: "_INBOX.abcdefghijklmnopqrstuv.", outbox: outbox{to: open(&drain{}, newTap())}}
	p := &place{subject: "bus.orders", stream: "bus=orders"}
	answers := make([]arrival, messages)
	msgs := make([]*backend.Message, messages)
	for i := range msgs {
		msgs[i] = typical()
		answers[i] = arrival{data: fmt.Appendf(nil, `{"stream":"bus=orders","seq":%d}`, i+17)}
	}
	publish := func() {
		l.call++
		l.outbox.frames, l.outbox.ends = l.outbox.frames[:0], l.outbox.ends[:0]
		l.text.Expect(0, 0, messages*positionLen)
		for i, m := range msgs {
			if err := l.outbox.publish(p.subject, l.reply(i), m, ""); err != nil {
				t.Fatal(err)
			}
		}
		for i, m := range msgs {
			if err := b.stored(l, m, p, &answers[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	require.Equal(t, "00000000000000000116", msgs[messages-1].Position)
	require.Equal(t, messages, bytes.Count(l.outbox.frames, []byte("HPUB bus.orders _INBOX.")))
	allocs := testing.AllocsPerRun(100, publish)
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 2.0, "allocations for %d messages", messages)
}
