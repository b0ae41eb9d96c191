package redisstream_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/redisstream"
)

// openURL opens a backend by its URL. It is closed when the test ends.
func openURL(t testing.TB, raw string) (*redisstream.Backend, error) {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	b, err := redisstream.Open(within(t, 10*time.Second), u)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, b.Close()) })
	}
	return b, err
}

// dialAs returns a client of a user, closed when the test ends.
func dialAs(t testing.TB, addr, user, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: password})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A denied SELECT is not taken for a denied INFO.
func TestServerWhoseDatabaseIsDeniedFailsOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	consumer := rules(t)["consumer"]
	server.User(t, "app", "secret", consumer...)
	_, err := openURL(t, "redis://app:secret@"+server.Addr()+"/1")
	require.ErrorIs(t, err, backend.ErrDenied)
	server.User(t, "app", "secret", append(consumer, rules(t)["database"]...)...)
	b, err := openURL(t, "redis://app:secret@"+server.Addr()+"/1")
	require.NoError(t, err)
	publish(t, b, batch("a", 1))
}

// If the server cannot be reached, Open fails by the end of its context.
func TestServerThatIsDownFailsOpen(t *testing.T) {
	t.Parallel()
	p := faultproxy.New(t, redistest.Start(t).Addr(), faultproxy.RESP)
	p.Refuse(true)
	_, err := openURL(t, "redis://"+p.Addr())
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "redisstream: open: ")
	p.Refuse(false)

	thaw := p.Freeze()
	defer thaw()
	u, err := url.Parse("redis://" + p.Addr())
	require.NoError(t, err)
	start := time.Now()
	_, err = redisstream.Open(within(t, 300*time.Millisecond), u)
	require.ErrorIs(t, err, within(t, 0).Err())
	require.Less(t, time.Since(start), 3*time.Second)
}

func TestUnixSocketWorks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Socket())
	b, err := openURL(t, "unix://"+server.Socket()+"?db=3")
	require.NoError(t, err)
	s := attach(t, b, config())
	publish(t, b, batch("a", 3))
	require.NoError(t, s.Ack(t.Context(), backend.Lend(receive(t, s, 3))))
	require.Zero(t, server.Client(t).Exists(t.Context(), stream).Val(), "it is in another database")
	_, err = openURL(t, "unix:///nowhere/redis.sock")
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

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

// A backend names the server as the program has named it, without a password.
func TestIdentity(t *testing.T) {
	server := redistest.Start(t)
	host, portText, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	port, err := strconv.Atoi(portText)
	require.NoError(t, err)
	want := backend.Identity{System: "redis", Address: host, Port: port}

	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	opened, err := redisstream.Open(t.Context(), u)
	require.NoError(t, err)
	require.Equal(t, want, backend.IdentityOf(opened))
	require.NoError(t, opened.Close())

	want.Client = "billing-1"
	for _, client := range []redis.UniversalClient{
		redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "billing-1", Username: "u", Password: "secret"}),
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr(), "other:1"}, ClientName: "billing-1"}),
	} {
		lent, err := redisstream.New(client, redisstream.Options{})
		require.NoError(t, err)
		require.Equal(t, want, backend.IdentityOf(lent))
		require.NoError(t, lent.Close())
		require.NoError(t, client.Close())
	}
	client := redis.NewClient(&redis.Options{Addr: "/run/redis.sock"})
	defer client.Close()
	lent, err := redisstream.New(client, redisstream.Options{})
	require.NoError(t, err)
	require.Equal(t, backend.Identity{System: "redis", Address: "/run/redis.sock"}, lent.Identity())
	require.NoError(t, lent.Close())
}
