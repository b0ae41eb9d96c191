package nats_test

import (
	"context"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/nats"
)

// A place is a test's own server, a backend on it, and a separate client.
type place struct {
	js   jetstream.JetStream
	conn *natsgo.Conn // the backend's
	b    *nats.Backend
}

func newPlace(t *testing.T, o nats.Options, args ...string) *place {
	t.Helper()
	s := natstest.Start(t, args...)
	direct, conn := connect(t, s), connect(t, s)
	js, err := jetstream.New(direct)
	require.NoError(t, err)
	b, err := nats.New(conn, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &place{js, conn, b}
}

func connect(t *testing.T, s *natstest.Server) *natsgo.Conn {
	t.Helper()
	conn, err := natsgo.Connect(s.URL(), natstest.Patient, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// bus makes a bus on the backend, which is shut down with the test.
func (p *place) bus(t *testing.T, o eventbus.Options) *eventbus.Bus {
	b := eventbustest.On(t, p.b, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = b.Shutdown(ctx)
	})
	return b
}

// The names that the backend gives the topic "orders" and its group "g".
const (
	ordersStream  = "bus=orders"
	ordersSubject = "bus.orders"
)

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: ordersStream, Subjects: []string{ordersSubject}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxBytes: 1 << 30, Duplicates: 2 * time.Minute, AllowDirect: true,
	}
}

func consumerConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Durable: "g", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxDeliver: -1, MaxAckPending: -1}
}

func member() backend.Config {
	return backend.Config{Topic: "orders", Group: "g", Lease: 30 * time.Second, MaxInFlight: 100}
}
