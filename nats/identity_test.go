package nats

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

// A backend names the first server that the program has named, without a password.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for servers, want := range map[string]backend.Identity{
		"nats://u:secret@h:7,nats://i:8": {Address: "h", Port: 7},
		"h":                              {Address: "h", Port: 4222},
		"tls://[::1]:7, nats://i":        {Address: "::1", Port: 7},
		"":                               {},
	} {
		b := &Backend{}
		b.conn = &natsgo.Conn{Opts: natsgo.Options{Url: servers, Name: "billing-1"}}
		want.System, want.Client = "nats", "billing-1"
		require.Equal(t, want, b.Identity(), servers)
	}
	server := natstest.Start(t)
	conn, err := natsgo.Connect(server.URL())
	require.NoError(t, err)
	defer conn.Close()
	b, err := New(conn, Options{})
	require.NoError(t, err)
	defer b.Close()
	require.Equal(t, "127.0.0.1", backend.IdentityOf(b).Address)
	require.NotZero(t, backend.IdentityOf(b).Port)
}
