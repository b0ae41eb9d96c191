package nats_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// Read ignores stored headers with names that the server itself adds to messages. A message
// that was copied from another stream has such headers.
func TestReadCopiedMessages(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b, err := as(t, server, "")
	require.NoError(t, err)
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	publish := func(id string) uint64 {
		m := &backend.Message{Topic: topic, ID: id}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		seq, err := strconv.ParseUint(m.Position, 10, 64)
		require.NoError(t, err)
		return seq
	}
	first := publish("a")
	publish("b")
	copied := &natsgo.Msg{Subject: "bus." + topic, Header: natsgo.Header{"Nats-Sequence": {strconv.FormatUint(first, 10)}}}
	_, err = conn.RequestMsgWithContext(t.Context(), copied)
	require.NoError(t, err)
	publish("d")
	var places []uint64 // of the messages, from the first
	for from := ""; len(places) < 10; {
		ms, err := b.Read(t.Context(), topic, backend.StartAfter(from), 3)
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			seq, err := strconv.ParseUint(m.Position, 10, 64)
			require.NoError(t, err)
			places = append(places, seq-first)
			from = m.Position
		}
	}
	require.Equal(t, []uint64{0, 1, 2, 3}, places)
}

// Any client that sees a reply subject can send a forged answer with any content.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b, err := as(t, server, "")
	require.NoError(t, err)
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	_, err = conn.Subscribe("bus."+topic, func(m *natsgo.Msg) {
		inbox := m.Reply[:strings.LastIndexByte(m.Reply, '-')+1]
		for _, index := range []string{"-1", "zzzzzzzzzzzzzzz", "", "5"} {
			_ = conn.Publish(inbox+index, []byte("{"))
		}
	})
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	for range 100 {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic}}))
	}
}

// Events of other programs arrive with an ID, a time, their headers and their values, the
// same at each delivery and for a Reader.
func TestEventsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b, err := as(t, server, "")
	require.NoError(t, err)
	member, err := b.Attach(t.Context(), backend.Config{Topic: topic, Group: group, Lease: time.Minute})
	require.NoError(t, err)
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	before := time.Now()
	for _, h := range []natsgo.Header{
		nil,
		{"Nats-Msg-Id": {"m1"}, "Traceparent": {"00-1-1-01"}, "Content-Type": {"application/json"}, "X-Tenant": {"100%"}},
		{"ce-id": {"a%2Fb"}, "ce-specversion": {"1.0"}, "ce-subject": {"a%2Fb"}},
		{"ce-id": {"x"}, "ce-subject": {"50%"}},
	} {
		_, err = conn.RequestMsgWithContext(t.Context(), &natsgo.Msg{Subject: "bus." + topic, Header: h, Data: []byte("{}")})
		require.NoError(t, err)
	}
	receive := func() (events []eventbus.Event) {
		for len(events) < 4 {
			ds, err := member.Receive(t.Context(), 4, 0)
			require.NoError(t, err)
			for i := range ds {
				require.NoError(t, ds[i].Err)
				events = append(events, eventbus.EventOf(&ds[i].Message))
				require.NoError(t, member.(backend.Delayer).Delay(t.Context(), []backend.Delayed{{Delivery: ds[i]}}))
			}
		}
		slices.SortFunc(events, func(a, b eventbus.Event) int { return strings.Compare(a.Position, b.Position) })
		return events
	}
	first := receive()
	require.Equal(t, first, receive())
	ms, err := b.Read(t.Context(), topic, "", 10)
	require.NoError(t, err)
	for i := range ms {
		require.Equal(t, first[i], eventbus.EventOf(&ms[i]))
	}
	for _, e := range first[:3] {
		require.WithinRange(t, e.Time, before.Add(-time.Minute), time.Now().Add(time.Minute))
	}
	require.NotEmpty(t, first[0].ID)
	require.Equal(t, "m1", first[1].ID)
	require.Equal(t, "application/json", first[1].ContentType)
	require.Equal(t, "00-1-1-01", first[1].Headers.Get("traceparent"))
	require.Equal(t, "100%", first[1].Headers.Get("X-Tenant"))
	require.Equal(t, []string{"a%2Fb", "a%2Fb"}, []string{first[2].ID, first[2].Subject})
	require.Equal(t, []string{"x", "50%"}, []string{first[3].ID, first[3].Subject})
}
