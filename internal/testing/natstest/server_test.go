package natstest_test

import (
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

func stream(t *testing.T, url string) jetstream.JetStream {
	conn, err := natsgo.Connect(url, natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

// Stored messages survive a kill and restart of the server.
func TestKillAndRun(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	_, err := stream(t, s.URL()).CreateStream(t.Context(), jetstream.StreamConfig{Name: "a"})
	require.NoError(t, err)
	s.Kill()
	require.False(t, s.Runs())
	s.Run()
	_, err = stream(t, s.URL()).Stream(t.Context(), "a")
	require.NoError(t, err)
}

// A stream with three replicas outlives one of the servers.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := natstest.StartCluster(t)
	js := stream(t, c.Servers()[0].URL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "a", Subjects: []string{"a"}, Replicas: 3})
	require.NoError(t, err)
	c.Servers()[1].Kill()
	require.Eventually(t, func() bool {
		_, err := js.Publish(t.Context(), "a", nil)
		return err == nil
	}, 20*time.Second, 100*time.Millisecond)
}
