package nats_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/testcerts"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/observer"
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

const canary = "CANARY-p4ssw0rd"

// requireHidden requires that no form of a value shows a secret.
func requireHidden(t *testing.T, secret string, values ...any) {
	t.Helper()
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, fmt.Sprintf(verb, v), secret, verb)
		}
		if text, err := json.Marshal(v); err == nil {
			require.NotContains(t, string(text), secret)
		}
	}
}

// X01: no error shows the URL's password or token, whatever is wrong.
func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	server := natstest.StartConfigured(t, `authorization { user: app, password: other }`)
	secure := natstest.StartConfigured(t, tlsConfig(certs, certs.Server, true))
	forbidden := natstest.StartConfigured(t, fmt.Sprintf(
		`authorization { users: [{ user: app, password: %q, permissions: { publish: ["nothing"], subscribe: ["nothing"] } }] }`, canary))
	for _, user := range []string{"app:" + canary + "@", ":" + canary + "@", canary + "@", "nats:" + canary + "%2F@"} {
		for _, raw := range []string{
			"http://" + user + "h", "nats://" + user, "nats://" + user + "h/x", "nats://" + user + "h#x", "nats://" + user + "h?skip_verify=1",
			"nats://" + user + "h?once_window=1", "nats://" + user + "h?namespace=&namespace=", "nats://" + user + "h?max_bytes=64M",
			"nats://" + user + "h?nkey_file=/a", "nats://" + user + "h?credentials_file=/a", "nats://" + user + "h?inbox_prefix=*",
			"nats://h:6?a" + canary + "@i", "nats://h:6/1?" + canary + "=1", "nats://h:6?replicas=" + canary, "nats://h:6?storage=" + canary,
			"nats://h:6?max_bytes=64" + canary, "nats://h:6?once_window=1" + canary, "nats://h:6?addr=" + canary, "nats://h:6?max_messages=" + canary,
			"tls://" + user + "h?ca_file=/nowhere", "tls://" + user + "h?cert_file=/a&key_file=/b", "nats://" + user + "h?ca_file=/a",
			"nats://" + user + closedAddr,
			"nats://" + user + closedAddr + "?addr=" + closedAddr2,
			"nats://" + user + "nobody.invalid",
			"nats://" + user + server.Addr(),                         // authorization violation
			"nats://" + user + secure.Addr(),                         // unknown authority
			"nats://" + user + forbidden.Addr(),                      // permissions violation, after the login
			"tls://" + user + secure.Addr() + "?ca_file=" + certs.CA, // no client certificate
			"tls://" + user + server.Addr(),                          // no TLS
		} {
			t.Run(strings.ReplaceAll(raw, canary, "…"), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				u, err := url.Parse(raw)
				require.NoError(t, err)
				_, err = nats.Open(ctx, u)
				require.Error(t, err)
				requireHidden(t, canary, err)
				_, err = eventbus.Open(ctx, raw, eventbus.Options{}, nats.Driver{})
				require.Error(t, err)
				requireHidden(t, canary, err)
			})
		}
	}
}

// X01: no error shows the content of a file, whatever is wrong with it.
func TestErrorsHideFiles(t *testing.T) {
	t.Parallel()
	server := natstest.StartConfigured(t, natstest.NewOperator(t).Config())
	_, nkey, seed := natstest.NewNkey(t)
	creds, secret := natstest.NewOperator(t).User(time.Now().Add(time.Hour))
	text, err := os.ReadFile(creds)
	require.NoError(t, err)
	damaged := func(text string) string {
		path := filepath.Join(t.TempDir(), "damaged")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	body := func(secret string) string { return secret[4 : len(secret)-8] }
	for parameter, paths := range map[string][]string{
		"nkey_file=":        {nkey, damaged(seed[:len(seed)-1]), damaged(seed + "A"), damaged("X" + seed[1:]), damaged("SA" + seed[2:])},
		"credentials_file=": {creds, damaged(strings.ReplaceAll(string(text), secret, secret[:50])), damaged(secret[:50]), damaged(seed), damaged(string(text)[:200])},
		"ca_file=":          {nkey},
	} {
		for _, path := range paths {
			for _, scheme := range []string{"nats://", "tls://"} {
				_, err := dial(t, scheme+server.Addr()+"?"+parameter+path)
				require.Error(t, err)
				requireHidden(t, body(seed), err)
				requireHidden(t, body(secret), err)
			}
		}
	}
}

// X01: no printed or logged form of a backend shows the secret.
func TestBackendsHideTheSecret(t *testing.T) {
	t.Parallel()
	name, nkey, seed := natstest.NewNkey(t)
	operator := natstest.NewOperator(t)
	creds, secret := operator.User(time.Now().Add(time.Hour))
	const denied = "authorization { user: somebody, password: else }"
	for way, row := range map[string]struct{ config, url, secret string }{
		"password":    {fmt.Sprintf("authorization { user: app, password: %q }", canary), "nats://app:" + canary + "@%s", canary},
		"token":       {fmt.Sprintf("authorization { token: %q }", canary), "nats://" + canary + "@%s", canary},
		"nkey":        {fmt.Sprintf("authorization { users: [{ nkey: %s }] }", name), "nats://%s?nkey_file=" + nkey, seed},
		"credentials": {operator.Config(), "nats://%s?credentials_file=" + creds, secret},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := natstest.StartConfigured(t, row.config)
			raw := fmt.Sprintf(row.url, server.Addr())
			d, err := nats.Driver{}.ConfigureTopic("t", map[string]string{"replicas": "1"})
			require.NoError(t, err)
			u, err := url.Parse(raw)
			require.NoError(t, err)
			b, err := d.Open(t.Context(), u)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			source, err := b.Attach(t.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Minute, MaxInFlight: 10})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, source.Close()) })
			requireHidden(t, row.secret, d, b, source)

			var mu sync.Mutex
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return log.Write(p)
			}), &slog.HandlerOptions{Level: slog.LevelDebug}))
			bus, err := eventbus.Open(t.Context(), raw, eventbus.Options{Observer: observer.Slog(logger), PublishTimeout: 500 * time.Millisecond}, nats.Driver{})
			require.NoError(t, err)
			requireHidden(t, row.secret, bus) // before its goroutines begin, because fmt reads without locks
			_, err = bus.Subscribe(t.Context(), "logged", eventbus.SubscribeOptions{Group: "g"}, func(context.Context, *eventbus.Delivery) error { return nil })
			require.NoError(t, err)
			harm := func() {
				for _, err := range []error{
					bus.Publish(t.Context(), "logged", &eventbus.Event{}), bus.Ready(t.Context()),
					b.Publish(t.Context(), []*backend.Message{{Topic: "t", ID: "1"}}), b.(backend.Pinger).Ping(t.Context()),
				} {
					require.Error(t, err)
					requireHidden(t, row.secret, err)
				}
			}
			server.Kill()
			harm()
			server.Configure(denied)
			harm()
			server.Configure(row.config)
			require.Eventually(t, func() bool { return bus.Ready(t.Context()) == nil }, 30*time.Second, 20*time.Millisecond)
			require.NoError(t, bus.Shutdown(t.Context()))
			requireHidden(t, row.secret, bus)
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, log.String())
			require.NotContains(t, log.String(), row.secret)
		})
	}
}

// A writer is a function as an io.Writer.
type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// X01 for a backend on a caller's connection.
func TestLentConnectionIsHidden(t *testing.T) {
	t.Parallel()
	server := natstest.StartConfigured(t, fmt.Sprintf("authorization { user: app, password: %q }", canary))
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t), natsgo.UserInfo("app", canary))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b, err := nats.New(conn, nats.Options{})
	require.NoError(t, err)
	source, err := b.Attach(t.Context(), backend.Config{Topic: "t", Group: "g", Lease: time.Minute, MaxInFlight: 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	requireHidden(t, canary, b, source)
}
