package nats

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/testcerts"
)

func parsed(t testing.TB, raw string) (*urlConfig, error) {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err, raw)
	return Driver{}.parse(u)
}

func TestURLSaysWhereAndHow(t *testing.T) {
	t.Parallel()
	creds, _ := natstest.NewOperator(t).User(time.Now())
	for raw, want := range map[string]urlConfig{
		"nats://h":                           {addrs: []string{"h:4222"}},
		"nats://h/":                          {addrs: []string{"h:4222"}},
		"nats://[::1]:7":                     {addrs: []string{"[::1]:7"}},
		"nats://user:p%40ss@h:7":             {addrs: []string{"h:7"}, user: url.UserPassword("user", "p@ss")},
		"nats://t%2Fken@h":                   {addrs: []string{"h:4222"}, user: url.User("t/ken")},
		"nats://:pass@h":                     {addrs: []string{"h:4222"}, user: url.UserPassword("", "pass")},
		"nats://h?addr=i:2&addr=[::1]:3":     {addrs: []string{"h:4222", "i:2", "[::1]:3"}},
		"nats://h?api_prefix=$JS.x.API":      {addrs: []string{"h:4222"}, options: Options{APIPrefix: "$JS.x.API"}},
		"nats://h?max_bytes=64MiB":           {addrs: []string{"h:4222"}, options: Options{MaxBytes: 64 << 20}},
		"nats://h?storage=file":              {addrs: []string{"h:4222"}},
		"nats://h?credentials_file=" + creds: {addrs: []string{"h:4222"}, creds: creds},
		"nats://h?inbox_prefix=_INBOX_shop":  {addrs: []string{"h:4222"}, inbox: "_INBOX_shop"},
		"nats://h?namespace=shop&once_window=90s&max_bytes=1048576&max_messages=10&replicas=3&storage=memory&domain=hub&stream=ALL": {
			addrs: []string{"h:4222"},
			options: Options{
				Namespace: "shop", OnceWindow: 90 * time.Second, MaxBytes: 1 << 20, MaxMessages: 10, Replicas: 3,
				Storage: jetstream.MemoryStorage, Domain: "hub", Stream: "ALL",
			},
		},
		"tls://h:7": {addrs: []string{"h:7"}, tls: true},
	} {
		got, err := parsed(t, raw)
		require.NoError(t, err, raw)
		require.Equal(t, want.tls, got.config != nil, raw)
		if got.config != nil {
			require.False(t, got.config.InsecureSkipVerify)
			require.Equal(t, uint16(tls.VersionTLS12), got.config.MinVersion)
		}
		require.Equal(t, got.user != nil || got.creds != "", got.login != nil, raw)
		got.config, got.login = nil, nil
		require.Equal(t, want, *got, raw)
	}
}

func TestURLIsStrict(t *testing.T) {
	t.Parallel()
	_, seed, _ := natstest.NewNkey(t)
	for raw, want := range map[string]string{
		"http://h":                                   "scheme is not nats or tls",
		"ws://h":                                     "scheme is not nats or tls",
		"nats:h":                                     "no host",
		"nats://":                                    "no host",
		"nats://:7":                                  "no host",
		"nats://h#x":                                 "behind #",
		"nats://h/x":                                 "has a path",
		"nats://h?skip_verify=true":                  `unknown parameter "skip_verify"`,
		"tls://h?insecure=1":                         `unknown parameter "insecure"`,
		"nats://h?name_space=a":                      `unknown parameter "name_space"; did you mean "namespace"?`,
		"nats://h?oncewindow=1s":                     `did you mean "once_window"?`,
		"nats://h?max_message=1":                     `did you mean "max_messages"?`,
		"nats://h?replica=1":                         `did you mean "replicas"?`,
		"nats://h?Namespace=a":                       "an unknown parameter",
		"nats://h?a=%zz":                             "malformed",
		"nats://h?a=1;b=2":                           "malformed",
		"nats://h?namespace=a&namespace=a":           `parameter "namespace": is given 2 times`,
		"nats://h?namespace=":                        `parameter "namespace": is empty`,
		"nats://h?namespace={a}":                     `parameter "namespace"`,
		"nats://h?namespace=a.b":                     `namespace "a.b" has a dot`,
		"nats://h?stream=":                           `parameter "stream": is empty`,
		"nats://h?stream=a*":                         `parameter "stream"`,
		"nats://h?stream=a.b":                        `stream "a.b" has a dot`,
		"nats://h?domain=":                           `parameter "domain": is empty`,
		"nats://h?domain=a>":                         `parameter "domain"`,
		"nats://h?domain=a.b":                        `domain "a.b" has a dot`,
		"nats://h?api_prefix=":                       `parameter "api_prefix": is empty`,
		"nats://h?api_prefix=JS.>":                   "API prefix is not the beginning of a subject",
		"nats://h?api_prefix=JS.API.":                "API prefix is not the beginning of a subject",
		"nats://h?api_prefix=a&domain=b":             "a domain and an API prefix exclude each other",
		"nats://h?inbox_prefix=":                     `parameter "inbox_prefix": is empty`,
		"nats://h?inbox_prefix=a.*":                  `parameter "inbox_prefix"`,
		"nats://h?inbox_prefix=a.":                   `parameter "inbox_prefix"`,
		"nats://h?once_window=90":                    `parameter "once_window": is not a duration with its unit, such as 90s`,
		"nats://h?once_window=0s":                    `parameter "once_window": must be positive`,
		"nats://h?once_window=-1s":                   `parameter "once_window": must be positive`,
		"nats://h?once_window=1ms":                   "once window of 1ms is less than 100 ms",
		"nats://h?max_bytes=x":                       `parameter "max_bytes": not a size`,
		"nats://h?max_bytes=64M":                     `parameter "max_bytes": unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB; did you mean MB?`,
		"nats://h?max_bytes=0":                       `parameter "max_bytes": must be positive`,
		"nats://h?max_bytes=0MiB":                    `parameter "max_bytes": must be positive`,
		"nats://h?max_bytes=-1":                      `parameter "max_bytes": must be positive`,
		"nats://h?max_bytes=99999999999999999999":    `parameter "max_bytes": is out of range`,
		"nats://h?max_messages=x":                    `parameter "max_messages": is not a whole number`,
		"nats://h?max_messages=0":                    `parameter "max_messages": must be positive`,
		"nats://h?max_messages=-5":                   `parameter "max_messages": must be positive`,
		"nats://h?replicas=1.5":                      `parameter "replicas": is not a whole number`,
		"nats://h?replicas=0":                        `parameter "replicas": must be positive`,
		"nats://h?storage=disk":                      `parameter "storage": is neither file nor memory`,
		"nats://h?storage":                           `parameter "storage": is neither file nor memory`,
		"nats://h?addr=i":                            `parameter "addr": is not host:port`,
		"nats://h?addr=:1":                           `parameter "addr": is not host:port`,
		"nats://h?addr=i:":                           `parameter "addr": is not host:port`,
		"nats://h?addr=i:1&addr=":                    `parameter "addr": is not host:port`,
		"nats://h?credentials_file=":                 `parameter "credentials_file": is empty`,
		"nats://h?credentials_file=/nowhere":         `parameter "credentials_file": nats: open /nowhere`,
		"nats://h?nkey_file=":                        `parameter "nkey_file": is empty`,
		"nats://h?nkey_file=/nowhere":                `parameter "nkey_file"`,
		"nats://u:p@h?nkey_file=/a":                  `more than one of a user, "credentials_file" and "nkey_file"`,
		"nats://t@h?credentials_file=/a":             `more than one of a user, "credentials_file" and "nkey_file"`,
		"nats://h?credentials_file=/a&nkey_file=/b":  `more than one of a user, "credentials_file" and "nkey_file"`,
		"nats://h?nkey_file=" + seed + "&ca_file=/a": "has no TLS: its scheme must be tls",
		"nats://h?ca_file=/a":                        "has no TLS: its scheme must be tls",
		"nats://h?cert_file=/a":                      "has no TLS: its scheme must be tls",
		"nats://h?key_file=/a":                       "has no TLS: its scheme must be tls",
		"tls://h?ca_file=":                           `parameter "ca_file": is empty`,
		"tls://h?ca_file=/nowhere/ca.pem":            `parameter "ca_file"`,
		"tls://h?cert_file=/a":                       `"cert_file" and "key_file" come together`,
		"tls://h?key_file=/a":                        `"cert_file" and "key_file" come together`,
		"tls://h?cert_file=/nowhere/a&key_file=/b":   `parameter "cert_file"`,
	} {
		u, err := url.Parse(raw)
		require.NoError(t, err, raw)
		_, err = Driver{}.Open(t.Context(), u)
		require.ErrorContains(t, err, "nats: open: ", raw)
		require.ErrorContains(t, err, want, raw)
		require.NotErrorIs(t, err, backend.ErrUnavailable, raw)
	}
}

func TestURLNamesFiles(t *testing.T) {
	t.Parallel()
	certs := testcerts.Make(t)
	a, err := parsed(t, fmt.Sprintf("tls://h?ca_file=%s&cert_file=%s&key_file=%s", certs.CA, certs.Client.Cert, certs.Client.Key))
	require.NoError(t, err)
	require.Len(t, a.config.Certificates, 1)
	require.NotNil(t, a.config.RootCAs)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, []byte("none"), 0o600))
	_, err = parsed(t, "tls://h?ca_file="+empty)
	require.ErrorContains(t, err, "has no certificate")
	_, err = parsed(t, fmt.Sprintf("tls://h?cert_file=%s&key_file=%s", certs.Server.Cert, certs.Client.Key))
	require.ErrorContains(t, err, `parameter "cert_file"`, "a key that does not fit")
	_, err = parsed(t, "nats://h?nkey_file="+empty)
	require.ErrorContains(t, err, `parameter "nkey_file"`)
	_, path, _ := natstest.NewNkey(t)
	a, err = parsed(t, "nats://h?nkey_file="+path)
	require.NoError(t, err)
	require.NotNil(t, a.login)
}

// configured adds one topic's settings to a driver.
func configured(t *testing.T, d backend.Driver, topic string, settings map[string]string) Driver {
	t.Helper()
	next, err := d.(backend.TopicConfigurer).ConfigureTopic(topic, settings)
	require.NoError(t, err)
	return next.(Driver)
}

func TestTopicsAreConfigured(t *testing.T) {
	t.Parallel()
	orders := configured(t, Driver{}, "shop.orders", map[string]string{
		"once_window": "90s", "replicas": "3", "storage": "memory",
	})
	both := configured(t, orders, "bills", map[string]string{"replicas": "5"})
	want := TopicOptions{OnceWindow: 90 * time.Second, Replicas: 3, Storage: jetstream.MemoryStorage}
	require.Equal(t, map[string]TopicOptions{"shop.orders": want}, orders.topics, "one driver does not change another")
	require.Equal(t, map[string]TopicOptions{"shop.orders": want, "bills": {Replicas: 5}}, both.topics)
	u, err := url.Parse("nats://h?replicas=5")
	require.NoError(t, err)
	a, err := both.parse(u)
	require.NoError(t, err)
	require.Equal(t, both.topics, a.options.Topics)
}

func TestTopicSettingsAreStrict(t *testing.T) {
	t.Parallel()
	const canary = "CANARY"
	d := configured(t, Driver{}, "orders", map[string]string{"replicas": "1"})
	for _, row := range []struct{ topic, setting, value, want string }{
		{"orders", "replicas", "1", "nats: configure orders: the topic is configured already"},
		{"a*", "replicas", "1", "nats: configure a*: the topic"},
		{"bills", "replica", canary, `nats: configure bills: unknown setting "replica"; did you mean "replicas"?`},
		{"bills", "max_messages", "7", `unknown setting "max_messages"`},
		{"bills", "namespace", canary, `unknown setting "namespace"`},
		{"bills", "replicas", canary, `nats: configure bills: setting "replicas": is not a whole number`},
		{"bills", "replicas", "-" + canary, `setting "replicas": is not a whole number`},
		{"bills", "replicas", "0", `setting "replicas": must be positive`},
		{"bills", "storage", canary, `setting "storage": is neither file nor memory`},
		{"bills", "once_window", "1" + canary, `setting "once_window": is not a duration`},
		{"bills", "once_window", "-1s", `setting "once_window": must be positive`},
		{"bills", "once_window", "", `setting "once_window": is not a duration`},
	} {
		_, err := d.ConfigureTopic(row.topic, map[string]string{row.setting: row.value})
		require.ErrorContains(t, err, row.want)
		require.NotContains(t, err.Error(), canary, row)
	}
}

// Settings of a topic that contradict the URL are refused before any request; no server
// runs here.
func TestTopicSettingsFitTheURL(t *testing.T) {
	t.Parallel()
	for setting, row := range map[string]struct{ value, url, want string }{
		"storage":     {"file", "nats://127.0.0.1:1?storage=memory", `parameter "storage": with memory for all others the topic orders cannot be in files`},
		"replicas":    {"3", "nats://127.0.0.1:1?stream=ALL", "topics have no options of their own in one stream"},
		"once_window": {"1ms", "nats://127.0.0.1:1", "topic orders: once window of 1ms is less than 100 ms"},
	} {
		u, err := url.Parse(row.url)
		require.NoError(t, err)
		_, err = configured(t, Driver{}, "orders", map[string]string{setting: row.value}).Open(t.Context(), u)
		require.ErrorContains(t, err, row.want)
		require.NotErrorIs(t, err, backend.ErrUnavailable)
	}
}

// New streams have the settings of the URL and of their topic.
func TestStreamsAreAsSaid(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	d := configured(t, Driver{}, "small", map[string]string{"storage": "memory", "once_window": "5s"})
	d = configured(t, d, "filed", map[string]string{"storage": "file"})
	u, err := url.Parse(server.URL() + "?namespace=shop&max_bytes=2MiB&max_messages=9&once_window=6s")
	require.NoError(t, err)
	b, err := d.Open(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for topic, want := range map[string]jetstream.StreamConfig{
		"small": {MaxBytes: 2 << 20, MaxMsgs: 9, Storage: jetstream.MemoryStorage, Duplicates: 5 * time.Second, Replicas: 1},
		"filed": {MaxBytes: 2 << 20, MaxMsgs: 9, Storage: jetstream.FileStorage, Duplicates: 6 * time.Second, Replicas: 1},
		"plain": {MaxBytes: 2 << 20, MaxMsgs: 9, Storage: jetstream.FileStorage, Duplicates: 6 * time.Second, Replicas: 1},
	} {
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{{Topic: topic, ID: "1"}}))
		name, err := js.StreamNameBySubject(t.Context(), "shop."+topic)
		require.NoError(t, err)
		s, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		got := s.CachedInfo().Config
		require.Equal(t, want, jetstream.StreamConfig{
			MaxBytes: got.MaxBytes, MaxMsgs: got.MaxMsgs, Storage: got.Storage, Duplicates: got.Duplicates, Replicas: got.Replicas,
		}, topic)
	}
}

// Parsing any URL does not panic, and its errors do not show the password.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"nats://h:1?namespace=a", "tls://h?ca_file=/a&cert_file=b&key_file=c", "nats://h?addr=a:1&addr=b", "nats:opaque", "nats://h?a=%zz",
		"nats://h#x", "nats://[::1]:x", "//h", "?", "nats://h?once_window=1&max_messages=x", "nats://h?max_bytes=64MiB", "nats://h?CANARY=1",
		"nats://h/%00?storage=%ff", "tls://h?stream=a&domain=b&replicas=3",
	} {
		f.Add(raw, "user", true)
	}
	const secret = "CANARY-p4ssw0rd"
	f.Fuzz(func(t *testing.T, raw, user string, token bool) {
		u, err := url.Parse(raw)
		if err != nil || strings.Contains(raw, "CANARY-") || strings.Contains(raw, "_file") {
			t.Skip()
		}
		if u.User = url.UserPassword(user, secret); token {
			u.User = url.User(secret)
		}
		a, err := Driver{}.parse(u)
		if err != nil {
			require.NotContains(t, err.Error(), secret)
			return
		}
		require.NotEmpty(t, a.addrs)
		require.NotContains(t, strings.Join(a.addrs, ","), secret)
		require.Positive(t, 1+a.options.MaxBytes)
		require.Positive(t, 1+a.options.MaxMessages)
	})
}

// A backend names the first server that the program has named, without a password.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for servers, want := range map[string]backend.Identity{
		"nats://u:secret@h:7,nats://i:8": {Address: "h", Port: 7},
		"h":                              {Address: "h", Port: 4222},
		"tls://[::1]:7, nats://i":        {Address: "::1", Port: 7},
		"":                               {},
	} {
		b := &Backend{}
		b.conn = &natsgo.Conn{Opts: natsgo.Options{Url: servers, Name: "billing-1"}}
		want.System, want.Client = "nats", "billing-1"
		require.Equal(t, want, b.Identity(), servers)
	}
	server := natstest.Start(t)
	conn, err := natsgo.Connect(server.URL(), natstest.Client(t))
	require.NoError(t, err)
	defer conn.Close()
	b, err := New(conn, Options{})
	require.NoError(t, err)
	defer b.Close()
	require.Equal(t, "127.0.0.1", backend.IdentityOf(b).Address)
	require.NotZero(t, backend.IdentityOf(b).Port)
}
