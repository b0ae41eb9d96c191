package config_test

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
)

const topicsFile = `bus:
  url: ${URL}
  topics:
    shop.orders: {max_bytes: 64MiB, storage: memory}
    shop.bills: {replicas: "1"}
`

func withURL(t *testing.T, url string) *config.Config {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(topicsFile), []string{"URL=" + url})
	require.NoError(t, err)
	return c
}

// A topic's stream gets the settings of the file.
func TestTopicsOfNATS(t *testing.T) {
	server := natstest.Start(t)
	bus, err := withURL(t, server.URL()).Open(t.Context(), nil, drivers()...)
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(t.Context())) }()
	for _, topic := range []string{"shop.orders", "shop.bills"} {
		require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{}))
	}
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	orders, err := js.Stream(t.Context(), "bus=shop+orders")
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, orders.CachedInfo().Config.MaxBytes)
	require.Equal(t, jetstream.MemoryStorage, orders.CachedInfo().Config.Storage)
	bills, err := js.Stream(t.Context(), "bus=shop+bills")
	require.NoError(t, err)
	require.Equal(t, jetstream.FileStorage, bills.CachedInfo().Config.Storage)
}

// A backend refuses settings of topics that it does not know.
func TestTopicsElsewhere(t *testing.T) {
	require.NoError(t, withURL(t, "nats://nowhere.invalid:1").Check(t.Context(), drivers()...))
	require.EqualError(t, withURL(t, "mem://").Check(t.Context(), drivers()...),
		"f.yaml:4:5: bus.topics.shop.orders: the driver of mem: has no settings of topics, and does not know: storage\n"+
			"f.yaml:5:5: bus.topics.shop.bills: the driver of mem: has no settings of topics, and does not know: replicas")
	require.EqualError(t, withURL(t, "redis://nowhere.invalid:1").Check(t.Context(), drivers()...),
		"f.yaml:4:46: bus.topics.shop.orders.storage: redisstream: configure shop.orders: unknown setting \"storage\"\n"+
			"f.yaml:5:28: bus.topics.shop.bills.replicas: redisstream: configure shop.bills: unknown setting \"replicas\"")
}
