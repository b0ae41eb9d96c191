package nats_test

import (
	"net/url"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// TestConformanceOld runs the suite on the oldest supported version.
func TestConformanceOld(t *testing.T) {
	path := natstest.Old(t, "2.10")
	single(t, new(rig), "nats-2.10", nats.Options{}, func(t testing.TB, args ...string) *natstest.Server {
		return natstest.StartOld(t, path, args...)
	})
}

// A server version that loses track of redeliveries is refused.
func TestTooOld(t *testing.T) {
	t.Parallel()
	s := natstest.StartOld(t, natstest.Old(t, "2.9"))
	conn, err := natsgo.Connect(s.URL(), natstest.Patient)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	_, err = nats.New(conn, nats.Options{})
	refusedAsOld(t, err, conn.ConnectedServerVersion())

	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	_, err = nats.Open(t.Context(), u)
	refusedAsOld(t, err, conn.ConnectedServerVersion())
}

func refusedAsOld(t *testing.T, err error, version string) {
	t.Helper()
	require.ErrorIs(t, err, backend.ErrRefused)
	require.ErrorContains(t, err, version, "the version that it has")
	require.ErrorContains(t, err, "2.10", "the version that it must have")
}
