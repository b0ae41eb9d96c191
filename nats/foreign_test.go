package nats_test

import (
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

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
	conn, err := natsgo.Connect(server.URL(), natstest.Patient)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	publish := func(id string) {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: id}}))
	}
	publish("a")
	publish("b")
	copied := &natsgo.Msg{Subject: "bus." + topic, Header: natsgo.Header{"Nats-Sequence": {"1"}}}
	_, err = conn.RequestMsgWithContext(t.Context(), copied)
	require.NoError(t, err)
	publish("d")
	var positions []string
	for from := ""; len(positions) < 10; {
		ms, err := b.Read(t.Context(), topic, from, 3)
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			positions = append(positions, strings.TrimLeft(m.Position, "0"))
			from = m.Position
		}
	}
	require.Equal(t, []string{"1", "2", "3", "4"}, positions)
}

// Any client that sees a reply subject can send a forged answer with any content.
func TestForgedAnswers(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	b, err := as(t, server, "")
	require.NoError(t, err)
	conn, err := natsgo.Connect(server.URL(), natstest.Patient)
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
