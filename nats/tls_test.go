package nats_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/testcerts"
	"github.com/seed41896749/eventbus/nats"
)

// dial opens a backend by URL, which is closed with the test.
func dial(t *testing.T, raw string) (*nats.Backend, error) {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	b, err := nats.Open(t.Context(), u)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, b.Close()) })
	}
	return b, err
}

// stores requires that a backend takes a message.
func stores(t *testing.T, b *nats.Backend) {
	t.Helper()
	require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: "t", ID: "1"}}))
}

func tlsURL(addr, ca string, pair testcerts.Pair) string {
	u := "tls://" + addr + "?ca_file=" + ca
	if pair.Cert != "" {
		u += "&cert_file=" + pair.Cert + "&key_file=" + pair.Key
	}
	return u
}

// tlsConfig configures a server that requires client certificates if verify is set.
func tlsConfig(certs *testcerts.Certs, pair testcerts.Pair, verify bool) string {
	return fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: %v, timeout: 30 }", pair.Cert, pair.Key, certs.CA, verify)
}

// X03: with the right certificates TLS works, by URL and by connection, at version 1.2 or
// later.
func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	server := natstest.StartConfigured(t, tlsConfig(certs, certs.Server, true))
	byURL, err := dial(t, tlsURL(server.Addr(), certs.CA, certs.Client))
	require.NoError(t, err)
	stores(t, byURL)
	conn, err := natsgo.Connect("tls://"+server.Addr(), natstest.Client(t), natsgo.Secure(certs.Config()))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	byConn, err := nats.New(conn, nats.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, byConn.Close()) })
	stores(t, byConn)

	open := natstest.StartConfigured(t, tlsConfig(certs, certs.Server, false))
	anonymous, err := dial(t, tlsURL(open.Addr(), certs.CA, testcerts.Pair{}))
	require.NoError(t, err)
	stores(t, anonymous)
}

// X03: a wrong certificate fails soon with a clear error, and no setting turns the check
// off.
func TestTLSFailuresAreClear(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	good := natstest.StartConfigured(t, tlsConfig(certs, certs.Server, true))
	expired := natstest.StartConfigured(t, tlsConfig(certs, certs.Expired, true))
	named := natstest.StartConfigured(t, tlsConfig(certs, certs.WrongName, true))
	plain := natstest.Start(t)
	for name, row := range map[string]struct{ url, want string }{
		"a wrong authority":      {tlsURL(good.Addr(), certs.ForeignCA, certs.Client), "unknown authority"},
		"another name":           {tlsURL(named.Addr(), certs.CA, certs.Client), "cannot validate certificate for 127.0.0.1"},
		"an expired certificate": {tlsURL(expired.Addr(), certs.CA, certs.Client), "expired"},
		// With TLS 1.3 the server refuses after the client has finished the handshake: a
		// reset may overtake its alert.
		"no client certificate":        {tlsURL(good.Addr(), certs.CA, testcerts.Pair{}), ""},
		"a foreign client":             {tlsURL(good.Addr(), certs.CA, certs.ForeignClient), ""},
		"the system's authorities":     {"tls://" + good.Addr(), "unknown authority"},
		"no TLS to a server that asks": {"nats://" + good.Addr(), "the URL's scheme must be tls, not nats"},
		"TLS to a server without":      {tlsURL(plain.Addr(), certs.CA, certs.Client), "the URL's scheme must be nats, not tls"},
		"one server with, one without": {tlsURL(plain.Addr(), certs.CA, certs.Client) + "&addr=" + plain.Addr(), "secure connection not available"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := dial(t, row.url)
			require.ErrorContains(t, err, "nats: open: ")
			require.ErrorContains(t, err, row.want)
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.NotErrorIs(t, err, natsgo.ErrTimeout, "it says why instead of waiting")
			t.Log(err)
		})
	}
	_, err := dial(t, tlsURL(good.Addr(), certs.ForeignCA, certs.Client)+"&skip_verify=true")
	require.ErrorContains(t, err, `unknown parameter "skip_verify"`)
}

// A server that waits for TLS, or is no NATS server, stays silent. The error says so, even
// if the context ends first.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	for _, scheme := range []string{"nats", "tls"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		u, err := url.Parse(scheme + "://" + listener.Addr().String())
		require.NoError(t, err)
		_, err = nats.Open(ctx, u)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waits for TLS")
	}
}

// X03: the client offers TLS 1.2 or later.
func TestTLSIsNotOld(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	offered := make(chan []uint16, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "INFO {\"server_id\":\"s\",\"tls_required\":true,\"max_payload\":1048576}\r\n")
		server := tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			offered <- hello.SupportedVersions
			return nil, net.ErrClosed
		}})
		_, _ = bufio.NewReader(server).ReadByte()
	}()
	_, err = dial(t, tlsURL(listener.Addr().String(), certs.CA, certs.Client))
	require.ErrorIs(t, err, backend.ErrUnavailable)
	select {
	case versions := <-offered:
		require.NotEmpty(t, versions)
		for _, v := range versions {
			require.GreaterOrEqual(t, v, uint16(tls.VersionTLS12))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no client has said what it offers")
	}
}
