package nats_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/testcerts"
	"github.com/seed41896749/eventbus/nats"
)

// Nothing listens here: no program is given a port below 1024 unless it asks for that port.
const closedAddr, closedAddr2 = "127.0.0.1:1", "127.0.0.1:2"

// requireDenied requires ErrDenied, and no class that invites a retry.
func requireDenied(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, backend.ErrDenied)
	require.NotErrorIs(t, err, backend.ErrUnavailable)
	require.NotErrorIs(t, err, natsgo.ErrTimeout)
	t.Log(err)
}

// A user can identify itself in each way that a server knows. An unknown user is denied,
// which no retry changes.
func TestUsersAreKnown(t *testing.T) {
	t.Parallel()
	name, key, _ := natstest.NewNkey(t)
	_, stranger, _ := natstest.NewNkey(t)
	operator := natstest.NewOperator(t)
	tomorrow := time.Now().Add(24 * time.Hour)
	creds, _ := operator.User(tomorrow)
	expired, _ := operator.User(time.Now().Add(-time.Hour))
	foreign, _ := natstest.NewOperator(t).User(tomorrow)
	for way, row := range map[string]struct {
		config string
		good   string   // before and behind host:port
		bad    []string // before and after host:port
	}{
		"password": {
			config: `authorization { user: app, password: "p@ss/w:rd" }`,
			good:   "nats://app:p%%40ss%%2Fw%%3Ard@%s",
			bad:    []string{"nats://%s", "nats://app:wrong@%s", "nats://ap:p%%40ss%%2Fw%%3Ard@%s", "nats://app@%s", "nats://:p%%40ss%%2Fw%%3Ard@%s"},
		},
		"a user like the client's own name": {
			config: `authorization { user: nats, password: nats }`, good: "nats://nats:nats@%s", bad: []string{"nats://nats:nat@%s", "nats://nat:nats@%s"},
		},
		"token": {
			config: `authorization { token: "s3cr3t/t" }`, good: "nats://s3cr3t%%2Ft@%s", bad: []string{"nats://%s", "nats://s3cr3t@%s", "nats://Violation@%s"},
		},
		"nkey": {
			config: fmt.Sprintf("authorization { users: [{ nkey: %s }] }", name),
			good:   "nats://%s?nkey_file=" + key,
			bad:    []string{"nats://%s", "nats://%s?nkey_file=" + stranger, "nats://" + name + "@%s"},
		},
		"credentials": {
			config: operator.Config(),
			good:   "nats://%s?credentials_file=" + creds,
			bad:    []string{"nats://%s", "nats://%s?credentials_file=" + expired, "nats://%s?credentials_file=" + foreign, "nats://app:app@%s"},
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := natstest.StartConfigured(t, row.config)
			b, err := dial(t, fmt.Sprintf(row.good, server.Addr()))
			require.NoError(t, err)
			stores(t, b)
			for _, bad := range row.bad {
				_, err := dial(t, fmt.Sprintf(bad, server.Addr()))
				requireDenied(t, err)
			}
		})
	}
}

// A client certificate can name the user.
func TestUsersAreKnownByCertificate(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	config := "tls { cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true, timeout: 30 }\nauthorization { users: [{ user: %q }] }"
	server := natstest.StartConfigured(t, fmt.Sprintf(config, certs.Server.Cert, certs.Server.Key, certs.CA, "CN=client"))
	b, err := dial(t, tlsURL(server.Addr(), certs.CA, certs.Client))
	require.NoError(t, err)
	stores(t, b)
	_, err = dial(t, tlsURL(server.Addr(), certs.CA, certs.WrongName))
	requireDenied(t, err)
}

// A file without the expected content fails for good.
func TestFilesWithoutCredentials(t *testing.T) {
	t.Parallel()
	server := natstest.StartConfigured(t, natstest.NewOperator(t).Config())
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("nothing"), 0o600))
	_, err := dial(t, server.URL()+"?nkey_file="+empty)
	require.ErrorContains(t, err, `nats: open: parameter "nkey_file": `)
	require.NotErrorIs(t, err, backend.ErrUnavailable)
	_, err = dial(t, server.URL()+"?credentials_file="+empty)
	require.ErrorContains(t, err, `nats: open: parameter "credentials_file": `)
	require.NotErrorIs(t, err, backend.ErrUnavailable)
}

// With inbox_prefix a user works that may not use _INBOX.
func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	server := natstest.StartConfigured(t, `authorization { users: [
		{ user: app, password: p, permissions: { subscribe: ["_INBOX_app.>"] } }
	] }`)
	b, err := dial(t, "nats://app:p@"+server.Addr()+"?inbox_prefix=_INBOX_app")
	require.NoError(t, err)
	stores(t, b)
	u, err := url.Parse("nats://app:p@" + server.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = nats.Open(ctx, u)
	require.Error(t, err, "without it nothing is answered")
	t.Log(err)
}

// The further servers of a URL are used when the first is down, at the start and later.
func TestFurtherServers(t *testing.T) {
	t.Parallel()
	first, second := natstest.Start(t), natstest.Start(t)
	at, err := dial(t, "nats://"+closedAddr+"?addr="+closedAddr2+"&addr="+second.Addr())
	require.NoError(t, err)
	stores(t, at)
	b, err := dial(t, "nats://"+first.Addr()+"?addr="+second.Addr())
	require.NoError(t, err)
	for _, s := range []*natstest.Server{first, second} {
		s.Kill()
		require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
		s.Run()
	}
}

// Opening fails with ErrUnavailable if no server answers, whatever the reason, before its
// context ends. The error has an address.
func TestNobodyIsThere(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	for name, raw := range map[string]string{
		"a closed port":              "nats://" + closedAddr,
		"several":                    "nats://" + closedAddr + "?addr=" + closedAddr2,
		"a name that nobody has":     "nats://nobody.invalid",
		"names that nobody has":      "nats://nobody.invalid?addr=none.invalid:4222",
		"TLS to a closed port":       "tls://" + closedAddr,
		"a known user, closed ports": "nats://u:p@" + closedAddr,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := dial(t, raw)
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.Regexp(t, closedAddr+`|\.invalid`, err.Error(), "an address that was tried")
		})
	}
	u, err := url.Parse("nats://" + silent.Addr().String() + "?addr=" + silent.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := nats.Open(ctx, u)
		ended <- err
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(4 * time.Second): // the dial timeout of two servers takes longer
		t.Fatal("opening goes on when its context has ended")
	}
}

// The context of opening does not bound the connection. A user that was unknown for a
// while reconnects once it is known again.
func TestConnectionsOutliveOpening(t *testing.T) {
	t.Parallel()
	const known, unknown = `authorization { user: app, password: p }`, `authorization { user: app, password: q }`
	server := natstest.StartConfigured(t, known)
	u, err := url.Parse("nats://app:p@" + server.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	b, err := nats.Open(ctx, u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cancel()
	stores(t, b)
	server.Configure(unknown)
	require.Never(t, func() bool { return b.Ping(t.Context()) == nil }, time.Second, 100*time.Millisecond, "it is tried, and denied")
	server.Configure(known)
	require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, 30*time.Second, 10*time.Millisecond)
	stores(t, b)
}
