package nats

import (
	"fmt"
	"slices"
	"strconv"
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

// The number of our allocations per read does not depend on the number of messages.
// Allocations inside nats.go are not counted.
func TestReadingAllocatesPerReadNotPerMessage(t *testing.T) {
	const messages = 512
	header := natsgo.Header{}
	for _, h := range writeHeader(nil, typical(), "") {
		header[h.Name] = []string{h.Value}
	}
	msgs := make([]*natsgo.Msg, messages)
	for i := range msgs {
		msgs[i] = &natsgo.Msg{
			Reply:  fmt.Sprintf("$JS.ACK.bus=orders.billing.1.%d.%d.1795243593723000000.%d", i+17, i+17, messages-i),
			Header: header, Data: typical().Payload,
		}
	}
	s := &source{config: backend.Config{Topic: "orders", Lease: time.Minute}}
	ds := s.deliveries(nil, msgs, leaseClock.now())
	require.Len(t, ds, messages)
	last := ds[messages-1]
	require.NoError(t, last.Err)
	require.Equal(t, "00000000000000000528", last.Position)
	require.ElementsMatch(t, typical().Headers, last.Headers)
	require.Equal(t, []string{typical().ID, typical().Key}, []string{last.ID, last.Key})
	allocs := testing.AllocsPerRun(100, func() { ds = s.deliveries(nil, msgs, leaseClock.now()) })
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 6.0, "allocations for a read of %d messages", messages)
}

// Publishing allocates a few times per call, however many messages it has. Allocations
// inside nats.go are not counted.
func TestPublishingAllocatesPerCallNotPerMessage(t *testing.T) {
	const messages = 100
	b := &Backend{}
	r := &requester{replyInbox: replyInbox{inbox: &inbox{prefix: "_INBOX.abcdefghijklmnopqrstuv."}}}
	loc := &location{subject: "bus.orders", stream: "bus=orders", capacity: new(capacity)}
	answers := make([]*natsgo.Msg, messages)
	msgs, locs := make([]*backend.Message, messages), slices.Repeat([]*location{loc}, messages)
	for i := range msgs {
		msgs[i] = typical()
		answers[i] = &natsgo.Msg{Data: fmt.Appendf(nil, `{"stream":"bus=orders","seq":%d}`, i+17)}
	}
	errs := slices.Repeat([]error{errPending}, messages) // to be sent
	publish := func() {
		r.compose(msgs, locs, errs)
		for i := range msgs {
			if err := b.published(r, loc, msgs[i], answers[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish()
	require.Equal(t, "00000000000000000116", msgs[messages-1].Position)
	require.Len(t, r.out, messages)
	require.Equal(t, r.inbox.prefix+strconv.Itoa(99), r.out[99].reply)
	allocs := testing.AllocsPerRun(100, publish)
	t.Logf("%.0f allocations for %d messages", allocs, messages)
	require.LessOrEqual(t, allocs, 6.0, "allocations for %d messages", messages)
}

// After Publish returns, the caller may change its messages, although the client library
// may send them later.
func TestWhatIsSentIsACopy(t *testing.T) {
	t.Parallel()
	m := typical()
	r := &requester{replyInbox: replyInbox{inbox: &inbox{prefix: "_INBOX.a."}}}
	r.compose([]*backend.Message{m}, []*location{{subject: "bus.orders"}}, []error{errPending})
	m.Headers[0].Value = "changed"
	m.Payload[0] = 'x'
	require.Zero(t, r.out[0].data[0])
	require.Equal(t, "order.placed", r.out[0].header.Get("ce-type"))
}
