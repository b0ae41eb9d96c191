package redisstream_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

func tlsURL(addr string, ca string, pair redistest.Pair) string {
	u := fmt.Sprintf("rediss://%s?ca_file=%s", addr, ca)
	if pair.Cert != "" {
		u += "&cert_file=" + pair.Cert + "&key_file=" + pair.Key
	}
	return u
}

// X03: with the right certificates TLS works, by the URL and by a client.
func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.TLS())
	certs := server.Certificates()
	byURL, err := openURL(t, tlsURL(server.Addr(), certs.CA, certs.Client))
	require.NoError(t, err)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), TLSConfig: certs.Config()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	byClient := open(t, client, redisstream.Options{})
	s := attach(t, byClient, config())
	publish(t, byURL, batch("a", 10))
	publish(t, byClient, once(batch("b", 10)))
	ds := receive(t, s, 20)
	require.NoError(t, s.Ack(t.Context(), backend.Lend(ds)))
	other := attach(t, byURL, config())
	published := make(chan error, 1)
	go func() {
		pause(50 * time.Millisecond)
		published <- byClient.Publish(t.Context(), batch("c", 1))
	}()
	require.Equal(t, "c-0", receive(t, other, 1)[0].ID, "what waits is woken")
	require.NoError(t, <-published)
}

// X03: a fault of the certificates fails soon with the reason, and no setting turns that
// off.
func TestTLSFailuresAreClear(t *testing.T) {
	t.Parallel()
	certs := redistest.Certificates(t)
	good := redistest.Start(t, redistest.TLSWith(certs, certs.Server))
	expired := redistest.Start(t, redistest.TLSWith(certs, certs.Expired))
	named := redistest.Start(t, redistest.TLSWith(certs, certs.WrongName))
	plain := redistest.Start(t)
	for name, row := range map[string]struct{ url, want string }{
		"a wrong authority":      {tlsURL(good.Addr(), certs.ForeignCA, certs.Client), "unknown authority"},
		"another name":           {tlsURL(named.Addr(), certs.CA, certs.Client), "cannot validate certificate for 127.0.0.1"},
		"an expired certificate": {tlsURL(expired.Addr(), certs.CA, certs.Client), "expired"},
		"no client certificate":  {tlsURL(good.Addr(), certs.CA, redistest.Pair{}), ""},
		// With TLS 1.3 the server refuses after the client has ended the handshake. Its
		// alert may get lost behind the reset.
		"a foreign client":           {tlsURL(good.Addr(), certs.CA, certs.ForeignClient), ""},
		"the system's authorities":   {"rediss://" + good.Addr(), "unknown authority"},
		"no TLS to a port with TLS":  {"redis://" + good.Addr(), "the server speaks TLS: use rediss:"},
		"TLS to a port without":      {tlsURL(plain.Addr(), certs.CA, certs.Client), "the server speaks without TLS: use redis:"},
		"a parameter to skip checks": {tlsURL(good.Addr(), certs.ForeignCA, certs.Client) + "&skip_verify=true", `unknown parameter "skip_verify"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := openURL(t, row.url)
			require.ErrorContains(t, err, row.want)
			if row.want == "" || strings.Contains(row.want, "the server speaks") {
				require.ErrorIs(t, err, backend.ErrUnavailable)
			}
			require.Less(t, time.Since(start), 8*time.Second, "it does not wait for its context")
			t.Log(err)
		})
	}
	client := redis.NewClient(&redis.Options{Addr: good.Addr(), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	b := open(t, client, redisstream.Options{})
	err := b.Publish(t.Context(), batch("a", 1))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "unknown authority")
}
