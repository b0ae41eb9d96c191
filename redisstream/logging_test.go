package redisstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/faultproxy"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

const canary = "CANARY-p4ssw0rd"

// go-redis logs to a canaryLog, which keeps all lines, and a second list of the lines that show a
// password.
type canaryLog struct {
	mu         sync.Mutex
	all, shown []string
}

// logged is the logger of go-redis in these tests.
var logged canaryLog

// of returns the lines with a text.
func (l *canaryLog) of(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *canaryLog) Printf(_ context.Context, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	if strings.Contains(line, canary) {
		l.shown = append(l.shown, line)
	}
}

// requireHidden requires that no value shows the password.
func requireHidden(t *testing.T, values ...any) {
	t.Helper()
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, fmt.Sprintf(verb, v), canary, verb)
		}
		if text, err := json.Marshal(v); err == nil {
			require.NotContains(t, string(text), canary)
		}
	}
}

// An outage makes go-redis write no line to the logger of the process, for a backend that
// was opened by a URL.
func TestOutageIsQuiet(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t), redistest.StartCluster(t)
	for url, servers := range map[string][]*redistest.Server{
		"redis://" + server.Addr():              {server},
		"redis+cluster://" + cluster.Addrs()[0]: cluster.Nodes(),
	} {
		b, err := openURL(t, url)
		require.NoError(t, err)
		s := attach(t, b, config())
		for _, server := range servers {
			server.Kill()
		}
		for range 20 {
			require.Error(t, b.Publish(within(t, 5*time.Second), batch("a", 1)))
			_, err = s.Receive(within(t, 5*time.Second), 1, 0)
			require.ErrorIs(t, err, backend.ErrUnavailable)
		}
		for _, server := range servers {
			server.Run()
		}
		eventually(t, "it works again", func() bool { return b.Publish(within(t, 5*time.Second), batch("b", 1)) == nil })
		require.NoError(t, b.Close())
		for _, server := range servers {
			require.Empty(t, logged.of(server.Addr()))
		}
	}
}

// X01: no error shows the password of a URL, whatever is wrong with the URL or the
// connection.
func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.User(t, "app", canary, "+ping", "~*")
	secure := redistest.Start(t, redistest.TLS())
	down := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	down.Refuse(true)
	user := "app:" + canary + "@"
	for _, raw := range []string{
		"http://" + user + "h", "redis://" + user, "redis://" + user + "h/x", "redis://" + user + "h#x", "redis://" + user + "h?skip_verify=1",
		"redis://" + user + "h?db=1", "redis://" + user + "h?once_window=1", "redis://" + user + "h?namespace=&namespace=",
		"redis://h:6?a" + canary + "@i", "redis://h:6/1?" + canary + "=1", "redis+sentinel://" + user + "h", "unix://" + user + "h/a",
		"redis+cluster://" + user + "h/1", "rediss://" + user + "h?ca_file=/nowhere", "rediss://" + user + "h?cert_file=/a&key_file=/b",
		"redis://" + user + down.Addr(),                      // it is down
		"redis+cluster://" + user + down.Addr(),              //
		"redis+sentinel://" + user + down.Addr() + "/master", //
		"unix://" + user + "/nowhere.sock",
		"redis://wrong:" + canary + "@" + server.Addr(),                             // WRONGPASS
		"redis://" + user + secure.Addr(),                                           // no TLS to a port with TLS
		"rediss://" + user + secure.Addr(),                                          // an authority that is not known
		"rediss://" + user + secure.Addr() + "?ca_file=" + secure.Certificates().CA, // no client certificate
		"redis://" + user + server.Addr() + "/999",                                  // no such database
		"redis+cluster://" + user + server.Addr(),                                   // no cluster
		"redis+sentinel://" + user + server.Addr() + "/master",
	} {
		t.Run(strings.ReplaceAll(raw, canary, "…"), func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(raw)
			require.NoError(t, err)
			_, err = redisstream.Open(within(t, 2*time.Second), u)
			require.Error(t, err)
			requireHidden(t, err)
			_, err = eventbus.Open(within(t, 2*time.Second), raw, eventbus.Options{}, redisstream.Driver{})
			require.Error(t, err)
			requireHidden(t, err)
		})
	}
}

// X01: a backend, its errors and its log lines do not show the password either.
func TestBackendsHideThePassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithoutAOF())
	grant := func() { server.User(t, "app", canary, "+@all", "-info", "~*") }
	grant()
	proxy := faultproxy.New(t, server.Addr(), faultproxy.RESP)
	raw := "redis://app:" + canary + "@" + proxy.Addr()
	byURL, err := openURL(t, raw)
	require.NoError(t, err)
	options := redisstream.Options{Namespace: "other"}
	byClient := open(t, dialAs(t, proxy.Addr(), "app", canary), options)
	var n notices
	for _, b := range []*redisstream.Backend{byURL, byClient} {
		c := config()
		c.Notify = n.notify
		s := attach(t, b, c)
		publish(t, b, batch("a", 1))
		requireHidden(t, b, options, s, b.Limits(), receive(t, s, 1))
	}
	require.NotEmpty(t, n.list)

	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	bus, err := eventbus.Open(t.Context(), raw, eventbus.Options{Observer: observer.Slog(logger), PublishTimeout: time.Second}, redisstream.Driver{})
	require.NoError(t, err)
	_, err = bus.Subscribe(t.Context(), "logged", eventbus.SubscribeOptions{Group: workers}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
	var errs []any
	harm := func() {
		pause(300 * time.Millisecond)
		errs = append(errs, bus.Publish(t.Context(), "logged", &eventbus.Event{}), bus.Ready(t.Context()), byURL.Ping(t.Context()),
			byURL.Publish(t.Context(), batch("b", 2)), byClient.Publish(t.Context(), once(batch("b", 2))))
	}
	proxy.Refuse(true)
	harm()
	proxy.Refuse(false)
	server.Revoke("app")
	harm()
	grant()
	require.NoError(t, bus.Shutdown(t.Context()))
	requireHidden(t, errs...)
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, log.String())
	require.NotContains(t, log.String(), canary)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, notice := range n.list {
		requireHidden(t, notice)
	}
}

// locked is a writer for several goroutines.
type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// A lockedLog is written to by several goroutines.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}

// Five seconds without the server are at most six lines of the log, while 20 subscriptions
// have work. The last line says since when, and for how long.
func TestAnOutageIsFewLines(t *testing.T) {
	t.Parallel()
	const subscriptions = 20
	server := redistest.Start(t)
	var log lockedLog
	bus, err := eventbus.Open(t.Context(), server.URL(), eventbus.Options{
		Observer: observer.Slog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}, redisstream.Driver{})
	require.NoError(t, err)
	var handled atomic.Int64
	for i := range subscriptions {
		topic := fmt.Sprint("t", i)
		_, err := bus.Subscribe(t.Context(), topic, eventbus.SubscribeOptions{Group: "g"}, func(ctx context.Context, _ *eventbus.Delivery) error {
			select { // some runs end while the server is away
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			handled.Add(1)
			return nil
		})
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, bus.Publish(t.Context(), topic, &eventbus.Event{}))
		}
	}
	server.Kill()
	time.Sleep(5 * time.Second)
	server.Run()
	for _, s := range bus.Subscriptions() {
		require.Eventually(t, func() bool { state, _ := s.State(); return state == observer.Running }, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, bus.Shutdown(t.Context()))
	lines := log.lines()
	t.Logf("%d events, %d lines:\n%s", handled.Load(), len(lines), strings.Join(lines, "\n"))
	require.LessOrEqual(t, len(lines), 6)
	require.Regexp(t, fmt.Sprintf(` since=\S+ lasted=(?:[5-9]|[1-5]\d)\.\d+s failures=\d+ subscriptions=%d$`, subscriptions), lines[len(lines)-1])
}
