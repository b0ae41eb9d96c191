package natsstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/store"
	"github.com/seed41896749/eventbus/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, s *natstest.Server, o ...natsgo.Option) (*natsgo.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := natsgo.Connect(s.URL(), append(o, natstest.Client(t))...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return conn, js
}

func TestStore(t *testing.T) {
	_, js := client(t, natstest.Start(t))
	for range 2 { // the bucket is missing, and then it exists
		s, err := Open(t.Context(), js, Options{Memory: true})
		require.NoError(t, err)
		require.NoError(t, storetest.TestStore(t.Context(), s))
	}
	stream, err := js.Stream(t.Context(), "KV_eventbus")
	require.NoError(t, err)
	require.Equal(t, jetstream.MemoryStorage, stream.CachedInfo().Config.Storage)
}

func TestStoreInACluster(t *testing.T) {
	c := natstest.StartCluster(t)
	_, js := client(t, c.Servers()[0])
	s, err := Open(t.Context(), js, Options{Bucket: "shared", Replicas: 3})
	require.NoError(t, err)
	require.NoError(t, s.Set(t.Context(), "k", []byte("v"), time.Hour))
	_, other := client(t, c.Servers()[1])
	o, err := Open(t.Context(), other, Options{Bucket: "shared"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		value, ok, err := o.Get(t.Context(), "k")
		return err == nil && ok && string(value) == "v"
	}, 10*time.Second, 10*time.Millisecond)
}

// A bucket in another domain has an API prefix.
func TestStoreInADomain(t *testing.T) {
	s := natstest.StartConfigured(t, "jetstream { domain: hub }")
	conn, _ := client(t, s)
	js, err := jetstream.NewWithDomain(conn, "hub")
	require.NoError(t, err)
	values, err := Open(t.Context(), js, Options{})
	require.NoError(t, err)
	require.NoError(t, storetest.TestStore(t.Context(), values))
}

// A value that has expired takes no room, nor does its mark.
func TestExpiredValuesTakeNoRoom(t *testing.T) {
	_, js := client(t, natstest.Start(t))
	s, err := Open(t.Context(), js, Options{})
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, s.Set(t.Context(), fmt.Sprint(i), []byte("v"), store.MinTTL))
	}
	require.Eventually(t, func() bool {
		stream, err := js.Stream(t.Context(), "KV_eventbus")
		return err == nil && stream.CachedInfo().State.Msgs == 0
	}, 20*time.Second, 100*time.Millisecond)
}

// A full bucket refuses values, and keeps all that it has.
func TestAFullBucketRefuses(t *testing.T) {
	_, js := client(t, natstest.Start(t))
	s, err := Open(t.Context(), js, Options{MaxBytes: 10 << 10})
	require.NoError(t, err)
	require.NoError(t, s.Set(t.Context(), "first", make([]byte, 5<<10), time.Hour))
	require.ErrorContains(t, s.Set(t.Context(), "second", make([]byte, 8<<10), time.Hour), "natsstore: set: ")
	_, ok, err := s.Get(t.Context(), "first")
	require.NoError(t, err)
	require.True(t, ok)
}

// A bucket that another program has made is used only if values expire in it.
func TestBucketsThatDoNotFitAreRefused(t *testing.T) {
	_, js := client(t, natstest.Start(t))
	for want, c := range map[string]jetstream.KeyValueConfig{
		"without LimitMarkerTTL": {Bucket: "a"},
		"keeps 5 values":         {Bucket: "b", History: 5, LimitMarkerTTL: time.Second},
	} {
		_, err := js.CreateKeyValue(t.Context(), c)
		require.NoError(t, err)
		_, err = Open(t.Context(), js, Options{Bucket: c.Bucket})
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, want)
	}
}

// A server without times to live is refused.
func TestAnOldServerIsRefused(t *testing.T) {
	_, js := client(t, natstest.StartOld(t, natstest.Old(t, "2.10")))
	_, err := Open(t.Context(), js, Options{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "2.11")
}

func TestErrorsAreReturned(t *testing.T) {
	server := natstest.Start(t)
	conn, js := client(t, server, natsgo.NoReconnect())
	s, err := Open(t.Context(), js, Options{})
	require.NoError(t, err)
	conn.Close()
	_, ok, err := s.Get(t.Context(), "k")
	require.ErrorContains(t, err, "natsstore: get: ")
	require.False(t, ok)
	require.ErrorContains(t, s.Set(t.Context(), "k", nil, time.Hour), "natsstore: set: ")
	_, err = Open(t.Context(), js, Options{})
	require.ErrorContains(t, err, `natsstore: open bucket "eventbus": `)
}

// Escaped keys are valid, short and different.
func TestEscape(t *testing.T) {
	from := map[string]string{}
	for _, key := range []string{
		"", "=", "==", "a", "A", "dedupe/shop.orders/billing/019c2f6e-8a54", "a b", "a=20b", "\x00", "é", "\xff",
		strings.Repeat("é", 1000), strings.Repeat("é", 1000) + "x", strings.Repeat("a", maxKey), strings.Repeat("a", maxKey+1),
	} {
		escaped := escape(key)
		require.Regexp(t, `^[-_=/a-zA-Z0-9]+$`, escaped)
		require.LessOrEqual(t, len(escaped), maxKey)
		require.NotContains(t, from, escaped, "%q and %q", from[escaped], key)
		from[escaped] = key
	}
	require.Equal(t, "dedupe/shop=2Eorders/billing/019c2f6e-8a54", escape("dedupe/shop.orders/billing/019c2f6e-8a54"))
}
