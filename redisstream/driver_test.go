package redisstream

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

func parsed(t testing.TB, raw string) (*address, error) {
	u, err := url.Parse(raw)
	require.NoError(t, err, raw)
	return parse(u)
}

type at = redis.UniversalOptions

func TestURLSaysWhereAndHow(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]address{
		"redis://h":                 {client: at{Addrs: []string{"h:6379"}}},
		"redis://h/":                {client: at{Addrs: []string{"h:6379"}}},
		"redis://[::1]:7/3":         {client: at{Addrs: []string{"[::1]:7"}, DB: 3}},
		"redis://user:p%40ss@h:7/0": {client: at{Addrs: []string{"h:7"}, Username: "user", Password: "p@ss"}},
		"redis://:pass@h":           {client: at{Addrs: []string{"h:6379"}, Password: "pass"}},
		"redis://h?namespace=shop.eu&once_window=90s&max_messages=10&allow_eviction=true": {
			client:  at{Addrs: []string{"h:6379"}},
			options: Options{Namespace: "shop.eu", OnceWindow: 90 * time.Second, MaxMessages: 10, AllowEviction: true},
		},
		"rediss://h:7/2":                    {client: at{Addrs: []string{"h:7"}, DB: 2}, tls: true},
		"unix:///run/redis.sock":            {client: at{Addrs: []string{"/run/redis.sock"}}},
		"unix://user:pass@/run/a.sock?db=2": {client: at{Addrs: []string{"/run/a.sock"}, Username: "user", Password: "pass", DB: 2}},
		"redis+sentinel://h/main":           {client: at{Addrs: []string{"h:26379"}, MasterName: "main"}},
		"redis+sentinel://u:p@h:1/main?addr=i:2&addr=j:3&db=4&tls=true": {
			client: at{Addrs: []string{"h:1", "i:2", "j:3"}, Username: "u", Password: "p", MasterName: "main", DB: 4}, tls: true,
		},
		"redis+cluster://h": {client: at{Addrs: []string{"h:6379"}, IsClusterMode: true}},
		"redis+cluster://h/?addr=i:2&addr=[::1]:3&tls=1": {client: at{Addrs: []string{"h:6379", "i:2", "[::1]:3"}, IsClusterMode: true}, tls: true},
		"redis+cluster://h?tls=false&allow_eviction=0":   {client: at{Addrs: []string{"h:6379"}, IsClusterMode: true}},
	} {
		got, err := parsed(t, raw)
		require.NoError(t, err, raw)
		config := got.client.TLSConfig
		require.Equal(t, want.tls, config != nil, raw)
		if config != nil {
			require.False(t, config.InsecureSkipVerify)
			require.Equal(t, uint16(tls.VersionTLS12), config.MinVersion)
		}
		want.scheme, _, _ = strings.Cut(raw, ":")
		got.client.TLSConfig = nil
		require.Equal(t, want, *got, raw)
		requireClient(t, got)
	}
}

// requireClient requires that go-redis makes the client for a URL that its scheme names.
func requireClient(t testing.TB, a *address) {
	client := redis.NewUniversalClient(&a.client)
	require.NoError(t, client.Close())
	if a.scheme == "redis+cluster" {
		require.IsType(t, &redis.ClusterClient{}, client)
		return
	}
	o := client.(*redis.Client).Options()
	require.Equal(t, a.scheme == "redis+sentinel", o.Addr == sentinelAddr)
	require.Equal(t, a.scheme == "unix", o.Network == "unix")
}

func TestURLIsStrict(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://h":                                    "scheme is none of redis, rediss, unix, redis+sentinel, redis+cluster",
		"redis:h":                                     "no host behind //",
		"redis://app@h":                               "a user without a password",
		"redis://h#x":                                 "behind #",
		"redis://":                                    "no host",
		"redis://:7":                                  "no host",
		"redis://h/x":                                 "number of a database",
		"redis://h/-1":                                "number of a database",
		"redis://h/1/2":                               "number of a database",
		"redis+cluster://h/1":                         "one database",
		"redis+sentinel://h":                          "master's name",
		"redis+sentinel://h/a/b":                      "master's name",
		"unix://h/run/a.sock":                         "unix:///path",
		"unix://":                                     "unix:///path",
		"redis://h?skip_verify=true":                  `unknown parameter "skip_verify"`,
		"rediss://h?insecure=1":                       `unknown parameter "insecure"`,
		"redis://h?name_space=a":                      `unknown parameter "name_space"; did you mean "namespace"?`,
		"redis://h?oncewindow=1s":                     `did you mean "once_window"?`,
		"redis://h?max_message=1":                     `did you mean "max_messages"?`,
		"redis://h?Namespace=a":                       "an unknown parameter",
		"redis://h?pool_size=10":                      `unknown parameter "pool_size"`,
		"redis://h?a=%zz":                             "malformed",
		"redis://h?a=1;b=2":                           "malformed",
		"redis://h?namespace=a&namespace=a":           `parameter "namespace": is given 2 times`,
		"redis://h?namespace=":                        `parameter "namespace": is empty`,
		"redis://h?namespace={a}":                     `parameter "namespace"`,
		"redis://h?once_window=90":                    `parameter "once_window"`,
		"redis://h?once_window=0s":                    `parameter "once_window": must be positive`,
		"redis://h?once_window=-1s":                   `parameter "once_window": must be positive`,
		"redis://h?once_window=1us":                   "once window of 1µs is less than a millisecond",
		"redis://h?max_messages=x":                    `parameter "max_messages"`,
		"redis://h?max_messages=0":                    `parameter "max_messages": must be positive`,
		"redis://h?max_messages=-5":                   `parameter "max_messages": must be positive`,
		"redis://h?allow_eviction=yes":                `parameter "allow_eviction"`,
		"redis://h?allow_eviction":                    `parameter "allow_eviction"`,
		"redis://h?db=1":                              `parameter "db": is for unix and redis+sentinel`,
		"redis+cluster://h?db=1":                      `parameter "db": is for unix and redis+sentinel`,
		"unix:///a?db=x":                              `parameter "db"`,
		"unix:///a?db=-1":                             `parameter "db": is negative`,
		"redis://h?tls=true":                          `parameter "tls": is for redis+sentinel and redis+cluster; use rediss:`,
		"redis+cluster://h?tls=on":                    `parameter "tls"`,
		"redis://h?addr=i:1":                          `parameter "addr": is for redis+sentinel and redis+cluster`,
		"unix:///a?addr=i:1":                          `parameter "addr": is for redis+sentinel and redis+cluster`,
		"redis+cluster://h?addr=i":                    `parameter "addr": is not host:port`,
		"redis+cluster://h?addr=:1":                   `parameter "addr": is not host:port`,
		"redis+cluster://h?addr=i:1&addr=":            `parameter "addr": is not host:port`,
		"redis://h?ca_file=/a":                        "has no TLS: use rediss:, or tls=true",
		"redis+cluster://h?cert_file=/a&tls=false":    "has no TLS: use rediss:, or tls=true",
		"rediss://h?ca_file=/nowhere/ca.pem":          `parameter "ca_file"`,
		"rediss://h?cert_file=/a":                     `"cert_file" and "key_file" come together`,
		"rediss://h?key_file=/a":                      `"cert_file" and "key_file" come together`,
		"rediss://h?cert_file=/nowhere/a&key_file=/b": `parameter "cert_file"`,
	} {
		_, err := parsed(t, raw)
		require.ErrorContains(t, err, want, raw)
		u, _ := url.Parse(raw)
		_, err = Driver{}.Open(t.Context(), u)
		require.ErrorContains(t, err, "redisstream: open: ", raw)
	}
}

func TestURLNamesTLSFiles(t *testing.T) {
	t.Parallel()
	certs := redistest.Certificates(t)
	a, err := parsed(t, fmt.Sprintf("rediss://h?ca_file=%s&cert_file=%s&key_file=%s", certs.CA, certs.Client.Cert, certs.Client.Key))
	require.NoError(t, err)
	require.Len(t, a.client.TLSConfig.Certificates, 1)
	require.NotNil(t, a.client.TLSConfig.RootCAs)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("none"), 0o600))
	_, err = parsed(t, "rediss://h?ca_file="+empty)
	require.ErrorContains(t, err, "has no certificate")
	_, err = parsed(t, fmt.Sprintf("rediss://h?cert_file=%s&key_file=%s", certs.Server.Cert, certs.Client.Key))
	require.ErrorContains(t, err, `parameter "cert_file"`, "a key that does not fit")
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"namespace":               {Namespace: "a b"},
		"less than a millisecond": {OnceWindow: time.Microsecond},
		"once window of -1s":      {OnceWindow: -time.Second},
		"max messages":            {MaxMessages: -1},
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		_, err := New(client, o)
		require.ErrorContains(t, err, want)
		require.NoError(t, client.Close())
	}
	_, err := New(nil, Options{})
	require.ErrorContains(t, err, "must be a *redis.Client or a *redis.ClusterClient")
}

// Reading any URL does not panic, and no error shows the password.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"redis://h:1/2?namespace=a", "rediss://h?ca_file=/a&cert_file=b&key_file=c", "unix:///a?db=1", "redis+sentinel://h/m?addr=a:1&tls=true",
		"redis+cluster://h?addr=a:1", "redis:opaque", "redis://h?a=%zz", "redis://h#x", "redis://[::1]:x", "//h", "?", "redis://h?once_window=1&max_messages=x",
		"redis://h?CANARY=1", "redis://h/%00?db=%ff",
	} {
		f.Add(raw, "user")
	}
	const password = "CANARY-p4ssw0rd"
	f.Fuzz(func(t *testing.T, raw, user string) {
		u, err := url.Parse(raw)
		if err != nil || strings.Contains(raw, "CANARY-") || strings.Contains(raw, "_file") {
			t.Skip()
		}
		u.User = url.UserPassword(user, password)
		a, err := parse(u)
		if err != nil {
			require.NotContains(t, err.Error(), password)
			return
		}
		require.Equal(t, password, a.client.Password)
		require.Equal(t, user, a.client.Username)
		require.NotEmpty(t, a.client.Addrs)
		requireClient(t, a)
	})
}
