package nats_test

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A cluster that elects a new leader may answer a publish twice, half a second apart. The
// driver does not take the second answer for the answer to a later publish.
func TestSecondAnswers(t *testing.T) {
	t.Parallel()
	r := new(rig)
	s := natstest.Start(t)
	b := r.open(t, nats.Options{}, alone(s))
	conn, err := natsgo.Connect(s.URL(), natstest.Patient)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	published, err := conn.SubscribeSync("bus.>")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	publish := func(id string) string {
		m := &backend.Message{Topic: "orders", ID: id}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		return m.Position
	}
	first := publish("first")
	var m *natsgo.Msg
	for m == nil || m.Header.Get("ce-id") != "first" { // the driver asks first whether the stream is served
		m, err = published.NextMsgWithContext(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, conn.Publish(m.Reply, []byte(`{"stream":"bus=orders","seq":1}`)))
	require.NoError(t, conn.Flush())
	require.NoError(t, b.(backend.Pinger).Ping(t.Context())) // the driver's connection has the answer now
	require.Greater(t, publish("second"), first)
	ms, err := b.(backend.Reader).Read(t.Context(), "orders", "", 10)
	require.NoError(t, err)
	require.Len(t, ms, 2)
}
