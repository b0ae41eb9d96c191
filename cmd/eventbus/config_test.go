package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/config"
)

// configFile makes a file and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "eventbus.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Checking a file needs no broker.
func TestConfigCheck(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "hunter2")
	name := configFile(t, `bus:
  url: redis://shop:${REDIS_PASSWORD}@nowhere.invalid:1
  subscriptions:
    billing: {topic: shop.orders, group: billing, concurrency: 16, retry: {attempts: 8, backoff: 2s..1m}, dead_letter: shop.lost}
    audit: {topic: shop.orders, group: audit, order: none, ack: on-receive, start: latest, max_bytes: none, lease: 1h}
    forever: {topic: shop.lost, group: f, dead_letter: (discard), order: total, timeout: none, retry: {attempts: unlimited}}
    once: {topic: t, group: o, retry: {attempts: 1}}
    slow: {topic: t, group: o, timeout: none, retry: {attempts: 3, jitter: 0}}
`)
	code, stdout, stderr := command(t, "config", "check", name)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	const tail = "at most 1,024 events or 64 MiB held; others get them if this member is silent for 30s"
	require.Equal(t, strings.Join([]string{
		"bus: each Publish takes at most 30s; at most 10,000 events or 64 MiB wait to be published, then Publish waits; the shutdown after Run takes at most 25s",
		"audit: shop.orders, group audit, 1 at a time, in no order; a new group starts with the events published from then on; acknowledged before it runs, so failed events are discarded; each run at most 1m; at most 1,024 events held; others get them if this member is silent for 1h",
		"billing: shop.orders, group billing, 16 at a time, in order of keys; acknowledged on success; each run at most 1m; up to 8 attempts over about 3m2s (at worst 11m38s, if every attempt finds a free handler and times out), then to shop.lost; " + tail,
		"forever: shop.lost, group f, 1 at a time, in order; acknowledged on success; each run without a time limit; unlimited attempts, 1s to 10m apart; a permanent failure is discarded; " + tail,
		"once: t, group o (its events are shared with slow), 1 at a time, in order of keys; acknowledged on success; each run at most 1m; one attempt, then to t.dlq; " + tail,
		"slow: t, group o (its events are shared with once), 1 at a time, in order of keys; acknowledged on success; each run without a time limit; up to 3 attempts over about 3s (at worst 3s plus the runs themselves, which have no time limit), then to t.dlq; " + tail,
		"",
	}, "\n"), stdout)

	code, stdout, stderr = command(t, "config", "check", name, "--json")
	require.Zero(t, code, stderr)
	var d description
	require.NoError(t, json.Unmarshal([]byte(stdout), &d))
	require.Len(t, d.Subscriptions, 5)
	require.NotContains(t, stdout, "hunter2")
}

func TestConfigCheckSaysWhatIsWrong(t *testing.T) {
	name := configFile(t, "bus:\n  url: redis://u:hunter2@h\n  servce: x\n  max_pending: 0\n")
	code, stdout, stderr := command(t, "config", "check", name)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, name+":3:3: bus: unknown key \"servce\"; did you mean service?\n"+
		name+":4:16: bus.max_pending: \"0\": less than 1\n"+
		"eventbus: config check: 2 errors\n", stderr)

	for _, row := range []struct{ file, want string }{
		{"bus: {url: 'rediz://u:hunter2@h'}", `:1:12: bus.url: has the scheme "rediz", which no driver given to Open serves; did you mean redis:?`},
		{"bus: {url: 'mem:', topics: {t: {replicas: 3}}}", ":1:29: bus.topics.t: the driver of mem: has no settings of topics, and does not know: replicas"},
		{"bus: {url: 'mem:?max_mesages=1'}", `:1:12: bus.url: inmemory: unknown parameter "max_mesages"; did you mean "max_messages"?`},
		{"bus: {url: 'redis://u:hunter2@nowhere.invalid?once_window=soon'}", `:1:12: bus.url: redisstream: parameter "once_window": `},
		{"bus: {url: 'nats://u:hunter2@nowhere.invalid?replicas=many'}", `:1:12: bus.url: nats: parameter "replicas": `},
		{"bus: {url: 'nats://nowhere.invalid?storage=memory', topics: {t: {storage: file}}}", `:1:12: bus.url: nats: parameter "storage": with memory`},
		{"bus: {url: 'rediss://nowhere.invalid?ca_file=/nowhere/ca.pem'}", ":1:12: bus.url: redisstream: "},
		{"bus: {url: '${NOT_SET_ANYWHERE}'}", ":1:12: bus.url: the variable NOT_SET_ANYWHERE of the environment is not set"},
	} {
		code, _, stderr = command(t, "config", "check", configFile(t, row.file))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, row.want)
		require.NotContains(t, stderr, "hunter2")
	}
	// The driver checks the settings of topics without asking a broker.
	const topics = "bus: {url: 'nats://u:hunter2@nowhere.invalid', topics: {shop.orders: {%s}}}"
	code, _, stderr = command(t, "config", "check", configFile(t, fmt.Sprintf(topics, "replicas: 3")))
	require.Zero(t, code, stderr)
	for settings, want := range map[string]string{
		"replica: 3":     `bus.topics.shop.orders.replica: nats: configure shop.orders: unknown setting "replica"; did you mean "replicas"?`,
		"replicas: many": `bus.topics.shop.orders.replicas: nats: configure shop.orders: setting "replicas": `,
	} {
		code, _, stderr = command(t, "config", "check", configFile(t, fmt.Sprintf(topics, settings)))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "eventbus.yaml:1:8") // the column of the value
		require.Contains(t, stderr, want)
		require.NotContains(t, stderr, "hunter2")
	}
	_, _, stderr = command(t, "config", "check", "redis://u:hunter2@h")
	require.Equal(t, "eventbus: config check: URL: no such file or directory\n", stderr)
	_, _, stderr = command(t, "config", "check")
	require.Equal(t, "eventbus: config check: needs one file: eventbus config check FILE\n", stderr)
	_, _, stderr = command(t, "config", "chek")
	require.Contains(t, stderr, `unknown command "chek" for "eventbus config"`)
}

func TestConfigSchema(t *testing.T) {
	code, stdout, stderr := command(t, "config", "schema")
	require.Zero(t, code, stderr)
	require.Equal(t, string(config.Schema()), stdout)
}
